// Runs a user's script as the script's own options say, within the lab's limits (the fence). The
// lab replaces 'SCRIPT' by the script's path, and appends an export for each function that a
// scenario runs. The environment contains OPTIONS (the fence, as options of k6 in JSON),
// CLIENT_CERT and CLIENT_KEY (the paths of a client's certificate and of its key; may be missing),
// and BASE_URL, which only the script reads. INSPECT is set if k6 only inspects the script.
import { Counter } from 'k6/metrics';
import * as own from 'SCRIPT';

export * from 'SCRIPT';

const thrown = new Counter('lab_iterations_thrown');

if (__ENV.INSPECT && own.handleSummary) {
  console.info('LAB: handleSummary');
}

export const options = {
  ...own.options,
  ...JSON.parse(__ENV.OPTIONS),
  ...(__ENV.CLIENT_CERT ? { tlsAuth: [{ cert: open(__ENV.CLIENT_CERT), key: open(__ENV.CLIENT_KEY) }] } : {}),
  paused: false,
  linger: false,
};

export function handleSummary() {
  return {}; // replaces the script's handleSummary, which may write files
}

function counted(iteration) {
  if (typeof iteration !== 'function') {
    return undefined;
  }
  const failed = (error) => {
    thrown.add(1);
    throw error;
  };
  return (data) => {
    try {
      const done = iteration(data);
      return done && typeof done.then === 'function' ? done.then(null, failed) : done;
    } catch (error) {
      return failed(error);
    }
  };
}

export default counted(own.default);
