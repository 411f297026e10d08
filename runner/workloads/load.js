// One request an iteration. Everything comes from the environment: TARGET_URL, METHOD, BODY (may be empty), MODE, and
// SCENARIO, which is a scenario of k6 as JSON.
import http from 'k6/http';

const method = __ENV.METHOD;
const url = __ENV.TARGET_URL;
const body = __ENV.BODY || null;
const params = body ? { headers: { 'Content-Type': 'application/json' } } : {};

export const options = {
  scenarios: { load: JSON.parse(__ENV.SCENARIO) },
  discardResponseBodies: true,
  noCookiesReset: true, // no server sets one, and a new jar for each iteration costs CPU
  noConnectionReuse: __ENV.MODE === 'close',
};

export default function () {
  http.request(method, url, body, params);
}
