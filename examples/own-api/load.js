// One iteration: it requests /count, and a path that does not exist. The lab sets BASE_URL.
import http from 'k6/http';

export default function () {
  http.get(`${__ENV.BASE_URL}/count`);
  http.get(`${__ENV.BASE_URL}/nowhere`);
}
