// Each iteration sends one request. All settings come from the environment: TARGET_URL, METHOD,
// BODY (may be empty), MODE (`keepalive` or `close`), SCENARIO (k6's scenario as JSON), OPTIONS
// (further options of k6 as JSON; may be missing), and CLIENT_CERT and CLIENT_KEY (the paths of a
// client's certificate and of its key; may be missing).
import http from 'k6/http';

const method = __ENV.METHOD;
const url = __ENV.TARGET_URL;
const body = __ENV.BODY || null;
const params = body ? { headers: { 'Content-Type': 'application/json' } } : {};

export const options = {
  ...JSON.parse(__ENV.OPTIONS || '{}'),
  ...(__ENV.CLIENT_CERT ? { tlsAuth: [{ cert: open(__ENV.CLIENT_CERT), key: open(__ENV.CLIENT_KEY) }] } : {}),
  scenarios: { load: JSON.parse(__ENV.SCENARIO) },
  discardResponseBodies: true,
  noCookiesReset: true, // no server sets a cookie, and a new jar for each iteration costs CPU
  noConnectionReuse: __ENV.MODE === 'close',
};

export default function () {
  http.request(method, url, body, params);
}
