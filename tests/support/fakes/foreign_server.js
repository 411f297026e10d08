// The HTTP server of Node.js, for tests. Run it as `node foreign_server.js PORT DELAY_MS MOST`.
// Each answer takes DELAY_MS milliseconds. A connection serves at most MOST requests, or any number
// of requests if MOST is 0. GET /seen returns a list with an entry for each request so far: its time
// (ms since the epoch), the number of its connection, and its client (the header User-Agent).
const http = require('http');

const [port, delay, most] = process.argv.slice(2).map(Number);
const seen = [];
let connections = 0;

const server = http.createServer((request, response) => {
  if (request.url === '/seen') {
    response.end(JSON.stringify(seen));
    return;
  }
  seen.push([Date.now(), request.socket.number, request.headers['user-agent'] || '']);
  setTimeout(() => response.end('hello'), delay);
});
server.maxRequestsPerSocket = most;
server.on('connection', (socket) => {
  socket.number = connections++;
});
server.listen(port, '127.0.0.1');
