// node's own HTTP server, for tests. Run as `node foreign_server.js PORT DELAY_MS MOST`: every answer takes DELAY_MS, and a
// connection serves MOST requests, any number with 0. `/seen` answers what came: when (ms since the epoch), on which
// connection, and who asked.
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
