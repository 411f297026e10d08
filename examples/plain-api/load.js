// One iteration: it lists the items, and adds one. The lab sets BASE_URL, and decides how many
// iterations begin, and when.
import http from 'k6/http';
import { check } from 'k6';

const items = `${__ENV.BASE_URL}/items`;
const json = { headers: { 'Content-Type': 'application/json' } };

export default function () {
  const listed = http.get(items);
  check(listed, { 'three items are listed': (answer) => answer.status === 200 && answer.json().length === 3 });
  const added = http.post(items, JSON.stringify({ name: 'shelf' }), json);
  check(added, { 'an item is added': (answer) => answer.status === 201 && answer.json().name === 'shelf' });
}
