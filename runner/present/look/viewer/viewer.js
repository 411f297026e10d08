// Replace the picture of each flame graph by a graph with search and zoom (d3-flame-graph).
(() => {
  "use strict";
  const COLORS = { kernel: "#d9d9d9", same: "#e4e4e4", more: "#f6a48c", less: "url(#flame-less)" };
  const FOUND = "#f2e24b";
  const ROW_PX = 22;
  const LETTER_PX = 8.5; // width of a letter in the font that page.css sets for labels
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

  const number = (us) => us.toPrecision(3);
  const signed = (us) => (us < 0 ? "−" : "+") + Math.abs(us).toFixed(2);

  // Return the label of a frame that is `px` wide. If the number does not fit, only the sign is
  // kept, because half of a number would mislead.
  function label(data, frame, px) {
    if (data.kind === "server") return frame.name;
    const whole = `${signed(frame.more)} ${frame.name}`;
    if (whole.length * LETTER_PX + 6 <= px) return whole;
    return frame.kind === "same" ? frame.name : `${signed(frame.more)[0]} ${frame.name}`;
  }

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  // Add the hatching of frames that take less time; all graphs of the page share it.
  function addPattern() {
    const holder = element("div", { class: "flame-pattern", "aria-hidden": "true" });
    holder.innerHTML =
      '<svg width="0" height="0"><defs><pattern id="flame-less" width="6" height="6" ' +
      'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path fill="#9cc9ea" ' +
      'd="M0 0h6v6H0z"/><path fill="#fff" d="M0 0h1v6H0z"/></pattern></defs></svg>';
    document.body.append(holder);
  }

  function words(data, frame) {
    if (data.kind === "server") {
      const percent = ((100 * frame.value) / data.root.value).toFixed(1);
      return `${frame.name}: ${number(frame.value)} µs per request, ${percent} %`;
    }
    const less = Math.max(0, frame.value - frame.more / 2);
    const more = Math.max(0, frame.value + frame.more / 2);
    const sure = frame.kind === "same" ? ", the interval includes zero" : "";
    const both = `${data.more} ${number(more)}, ${data.less} ${number(less)}`;
    return `${frame.name}: ${signed(frame.more)} µs per request (${both})${sure}`;
  }

  function start(figure) {
    const data = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    const title = figure.querySelector("img").alt;
    const name = figure.closest("details")?.querySelector("summary").textContent ?? title;
    const input = element("input", {
      type: "search",
      placeholder: "Search a function",
      "aria-label": `Search a function: ${name}`,
    });
    const back = element("button", { type: "button" }, "Zoom out");
    const said = element("output", { "aria-live": "polite" });
    const graph = element("code", { class: "flame-graph" });
    const controls = element("form", { role: "search", "aria-label": name }, input, back, said);
    figure.querySelector("img").before(element("div", { class: "flame-view" }, controls, graph));
    figure.classList.add("live");

    let chart = null;
    let width = 0;
    let found = [];
    const idle = () =>
      data.kind === "server"
        ? "Press a function to zoom in. After a search, Enter zooms to the widest function that was found."
        : "Press a kind of work or a function to zoom in.";

    function search() {
      const term = input.value.trim();
      if (term) chart.search(term);
      else {
        chart.clear();
        found = [];
        said.textContent = idle();
      }
    }

    function draw() {
      width = graph.clientWidth;
      graph.replaceChildren();
      chart = flamegraph
        .default()
        .width(width)
        .cellHeight(ROW_PX)
        .inverted(true)
        .minFrameSize(0.5)
        .transitionDuration(calm ? 0 : 200)
        .setLabelHandler((node) => words(data, node.data))
        .getName((node) => label(data, node.data, (node.x1 - node.x0) * width))
        .setColorMapper((node) =>
          node.highlight ? FOUND : (COLORS[node.data.kind] ?? data.color)
        )
        .setSearchMatch((node, term) => node.data.name.toLowerCase().includes(term.toLowerCase()))
        .setSearchHandler((results, sum) => {
          found = results;
          const share = ((100 * sum) / data.root.value).toFixed(1);
          said.textContent = `${results.length} found: ${number(sum)} µs, ${share} %`;
        })
        .setDetailsHandler((text) => {
          if (text) said.textContent = text;
        })
        .onClick((node) => {
          said.textContent = words(data, node.data);
        });
      d3.select(graph).datum(structuredClone(data.root)).call(chart);
      const svg = graph.querySelector("svg");
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", title);
      search();
    }

    controls.addEventListener("submit", (event) => {
      event.preventDefault();
      const [widest] = [...found].sort((one, other) => other.data.value - one.data.value);
      if (widest) chart.zoomTo(widest);
    });
    input.addEventListener("input", search);
    back.addEventListener("click", () => chart.resetZoom());
    new ResizeObserver(() => {
      if (graph.clientWidth && graph.clientWidth !== width) draw();
    }).observe(graph);
    if (graph.clientWidth) draw();
  }

  addPattern();
  document.querySelectorAll("figure.flame").forEach(start);
})();
