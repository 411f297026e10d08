// Runs the default function of a user's script, under the lab's scenario and within the lab's
// limits (the fence). The lab replaces 'SCRIPT' by the script's path. The environment contains
// SCENARIO (k6's scenario as JSON), OPTIONS (the fence, as options of k6 in JSON), MODE
// (`keepalive` or `close`), CLIENT_CERT and CLIENT_KEY (the paths of a client's certificate and of
// its key; may be missing), and BASE_URL, which only the script reads. INSPECT is set if k6 only
// inspects the script.
import { Counter } from 'k6/metrics';
import * as own from 'SCRIPT';

const thrown = new Counter('lab_iterations_thrown');

if (typeof own.default !== 'function') {
  throw new Error('LAB: it exports no default function. Export what one iteration does: `export default function () {...}`');
}
if (own.setup) {
  throw new Error(
    'LAB: it exports setup(), which the lab does not run. Remove it: do its work before `bench run`, and save the result ' +
      'in a file that the script reads by open(); what needs no request can stand outside of all functions',
  );
}
if (own.teardown) {
  throw new Error('LAB: it exports teardown(), which the lab does not run. Remove it: do its work after `bench run`');
}
if (__ENV.INSPECT) {
  const unused = [...Object.keys(own.options || {}).map((name) => `options.${name}`), ...(own.handleSummary ? ['handleSummary'] : [])];
  console.info(`LAB: ${unused.join(', ')}`);
}

export const options = {
  ...JSON.parse(__ENV.OPTIONS),
  ...(__ENV.CLIENT_CERT ? { tlsAuth: [{ cert: open(__ENV.CLIENT_CERT), key: open(__ENV.CLIENT_KEY) }] } : {}),
  scenarios: { load: JSON.parse(__ENV.SCENARIO) },
  noConnectionReuse: __ENV.MODE === 'close',
};

function failed(error) {
  thrown.add(1);
  throw error;
}

export default function () {
  try {
    const done = own.default();
    return done && typeof done.then === 'function' ? done.then(null, failed) : done;
  } catch (error) {
    return failed(error);
  }
}
