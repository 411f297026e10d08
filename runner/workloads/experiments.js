// One POST an iteration, the published body. Everything that varies comes from the environment:
// TARGET_URL, VUS, and either ITERATIONS with MAX_DURATION_S (measured) or WARMUP_S (warm-up), MODE.
import http from 'k6/http';

const vus = Number(__ENV.VUS);
const body = JSON.stringify({
  name: 'new_home_page',
  variants: [
    { name: 'blue_button', allocation_percent: 50.0 },
    { name: 'red_button', allocation_percent: 50.0 },
  ],
});
const params = { headers: { 'Content-Type': 'application/json' } };

const measured = {
  executor: 'shared-iterations',
  vus,
  iterations: Number(__ENV.ITERATIONS),
  // k6's default of 10 min would silently drop the rest of a long run.
  maxDuration: `${__ENV.MAX_DURATION_S}s`,
};
const warmup = {
  executor: 'constant-vus',
  vus: Math.min(vus, 100),
  duration: `${__ENV.WARMUP_S}s`,
  gracefulStop: '5s',
};

export const options = {
  scenarios: { load: __ENV.WARMUP_S ? warmup : measured },
  discardResponseBodies: true,
  noConnectionReuse: __ENV.MODE === 'close',
  summaryTrendStats: ['avg', 'min', 'med', 'max', 'p(90)', 'p(95)', 'p(99)', 'p(99.9)', 'count'],
};

export default function () {
  http.post(__ENV.TARGET_URL, body, params);
}
