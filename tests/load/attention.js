// Posts attention requests at a constant rate with k6.
//   k6 run -e URL=http://127.0.0.1:8080/attention -e RATE=200 tests/load/attention.js
// Also: DURATION (10s), CONNECTIONS (256), LENGTH, WIDTH and HEADS (64, 256, 4), KEY.
import http from 'k6/http';
import { check } from 'k6';
import { Counter } from 'k6/metrics';

const url = __ENV.URL || 'http://127.0.0.1:8080/attention';
const length = Number(__ENV.LENGTH || 64);
const width = Number(__ENV.WIDTH || 256);
const heads = Number(__ENV.HEADS || 4);
const connections = Number(__ENV.CONNECTIONS || 256);
const refused = new Counter('refused');

export const options = {
  scenarios: {
    attention: {
      executor: 'constant-arrival-rate', // times are fixed beforehand: open loop
      rate: Number(__ENV.RATE || 100),
      timeUnit: '1s',
      duration: __ENV.DURATION || '10s',
      preAllocatedVUs: Math.min(64, connections),
      maxVUs: connections,
    },
  },
  summaryTrendStats: ['min', 'med', 'p(90)', 'p(99)', 'p(99.9)', 'max'],
  thresholds: { checks: ['rate>0.999'] },
};

const data = Array.from({ length: length * width }, () => Math.random() * 4 - 2);
const body = JSON.stringify({
  num_heads: heads,
  need_weights: false,
  query: { shape: [1, length, width], data },
});
const headers = { 'Content-Type': 'application/json' };
if (__ENV.KEY) headers.Authorization = `Bearer ${__ENV.KEY}`;

export default function () {
  const answer = http.post(url, body, { headers });
  if (answer.status === 503 || answer.status === 429) refused.add(1);
  check(answer, { answered: (a) => [200, 429, 503].includes(a.status) });
}
