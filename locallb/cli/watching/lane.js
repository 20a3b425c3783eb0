// One lane: a Service from its addresses through its proxy to its backends, drawn from plain data and always as text.
const STEP = 32, GAP = 52, SEEN = 60;
const SVG = "http://www.w3.org/2000/svg";

export function make(tag, kind, ...content) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...content);
  return element;
}

function drawn(tag, attributes, ...content) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...content);
  return element;
}

function titled(element, text) {
  element.title = text;
  return element;
}

const told = (data) => [data.state, data.reason, ...data.notices.map(([reason]) => reason)].filter(Boolean).join(", ");

const label = (words) => make("span", "unseen", words);

// Curves between the middle of the proxy and `count` things one above another.
function wires(count, outward) {
  const rows = Math.max(count, 1), height = rows * STEP, middle = height / 2;
  const paths = Array.from({ length: count }, (_, n) => {
    const y = (n + 0.5) * STEP, [from, to] = outward ? [middle, y] : [y, middle];
    return drawn("path", { d: `M0 ${from}C${GAP / 2} ${from} ${GAP / 2} ${to} ${GAP} ${to}` });
  });
  return drawn("svg", { class: "wires", width: GAP, height, viewBox: `0 0 ${GAP} ${height}`, "aria-hidden": "true" }, ...paths);
}

export class Lane {
  constructor(name) {
    this.name = name;
    this.rates = [];
    this.history = [];
    this.element = make("li", "lane");
    this.element.lane = this;
    this.button = make("button", "proxy");
    this.button.type = "button";
    this.button.tabIndex = -1;
    this.button.setAttribute("aria-expanded", "false");
    this.button.addEventListener("click", () => this.toggle());
    this.isSeen = false;
  }

  // Take what is new of it; returns in what sentence that would be told, if it is worth one.
  take(data) {
    const before = this.data;
    this.data = data;
    this.text = [this.name, told(data), ...data.addresses, ...data.hosts, ...data.ports.flatMap((port) => [port.label, ...port.backends])]
      .join(" ").toLowerCase();
    this.draw();
    return before && told(before) === told(data) ? "" : `${this.name}: ${told(data)}`;
  }

  draw() {
    const { data, element } = this, isReached = document.activeElement === this.button;
    const rows = Math.max(data.addresses.length, data.ports.length, 1);
    element.className = `lane ${data.state}${element.classList.contains("changed") ? " changed" : ""}`;
    element.style.containIntrinsicSize = `auto ${Math.max(rows * STEP, data.hosts.length ? 66 : 48) + 17}px`;
    this.ports = data.ports.map((port) => this.port(port));
    this.inward = wires(data.addresses.length, false);
    this.outward = wires(data.ports.length, true);
    element.replaceChildren(
      make("ul", "addresses", ...data.addresses.map((address) => make("li", "", titled(make("span", "pill", label("address "), address), address)))),
      this.inward,
      make("div", "proxies", this.proxy()),
      this.outward,
      make("ul", "ports", ...this.ports),
    );
    if (this.isOpen) element.append(this.all());
    if (isReached) this.button.focus({ preventScroll: true }); // it was moved, and lost what it had
    this.flow();
  }

  proxy() {
    const { data, button } = this;
    const hosts = data.hosts.length > 2 ? `${data.hosts.slice(0, 2).join(" ")} +${data.hosts.length - 2}` : data.hosts.join(" ");
    this.spark = drawn("path", { d: "" });
    this.side = data.state === "serving"
      ? drawn("svg", { class: "spark", viewBox: "0 0 72 24", preserveAspectRatio: "none", "aria-hidden": "true" }, this.spark)
      : make("span", "tag", data.reason || data.state);
    const place = titled(make("span", "place", data.place), data.place);
    for (const [reason, message] of data.notices) place.append(" · ", titled(make("b", "notice", reason), message));
    button.replaceChildren(
      titled(make("span", "name", data.name), data.name), place,
      ...(hosts ? [titled(make("span", "hosts", hosts), data.hosts.join("\n"))] : []), this.side, label(` ${data.state}`),
    );
    button.title = data.message;
    return button;
  }

  port(port) {
    const closed = port.state === "serving" ? "" : "closed";
    const [first, second] = port.backends, count = port.backends.length + port.more;
    const words = count > 2 ? `${first}, ${second} +${count - 2}` : port.backends.join(", ");
    const backends = first
      ? titled(make("span", "pill", label("backends "), words), port.backends.join("\n"))
      : titled(make("span", "nowhere", port.reason || "no backends"), port.message);
    return make("li", closed, make("span", "pill", label("port "), port.label), make("span", "wire"), backends, make("span", "flow"));
  }

  toggle() {
    this.isOpen = !this.isOpen;
    this.button.setAttribute("aria-expanded", String(this.isOpen));
    this.element.querySelector(".all")?.remove();
    if (this.isOpen) this.element.append(this.all());
  }

  all() {
    const { data } = this, list = make("dl", "all");
    const say = (what, ...lines) => {
      const text = lines.filter(Boolean).join("\n");
      if (text) list.append(make("dt", "", what), make("dd", "", text));
    };
    say("State", `${data.state} ${data.reason}`, data.message);
    say("Addresses", ...data.addresses);
    say("Hostnames", ...data.hosts);
    for (const port of data.ports) {
      const more = port.more ? `and ${port.more} more` : "";
      say(`Port ${port.label}`, port.message === data.message ? port.reason : port.message, ...port.backends, more);
    }
    say("Routes", ...data.routes);
    say("Proxy", data.proxy);
    say("Notices", ...data.notices.map(([, message]) => message));
    if (data.changed) say("Changed", `${new Date(data.changed * 1000).toLocaleTimeString()}, ${Math.round(data.took * 1000)} ms after it was known`);
    return list;
  }

  // One more second of figures; what isn't seen is only remembered.
  step() {
    const busiest = this.rates.reduce((sum, rate) => sum + (rate.requests || rate.connections), 0);
    if (!busiest && !this.history.length) return;
    this.history.push(busiest);
    if (this.history.length > SEEN) this.history.shift();
    if (this.history.every((value) => !value)) this.history = [];
  }

  flow() {
    if (!this.isSeen || !this.data) return;
    const flowing = this.rates.filter(flows);
    this.element.classList.toggle("flows", flowing.length > 0);
    for (const path of this.inward.children) path.classList.toggle("flowing", flowing.length > 0);
    for (const [n, { label }] of this.data.ports.entries()) {
      const isFlowing = flowing.some((rate) => rate.ports.includes(label));
      this.outward.children[n].classList.toggle("flowing", isFlowing);
      this.ports[n].classList.toggle("flowing", isFlowing);
      const rate = this.rates.find((each) => each.ports[0] === label);
      this.ports[n].lastChild.replaceChildren(...(rate ? words(rate) : []));
    }
    this.spark.setAttribute("d", curve(this.history));
  }
}

const flows = (rate) => Boolean(rate.requests || rate.connections || rate.in || rate.out);

// The last minute, its busiest second on top.
function curve(history) {
  const top = Math.max(...history, 1e-9), from = SEEN - history.length;
  const points = history.map((value, n) => `${((from + n) * 72 / (SEEN - 1)).toFixed(1)} ${(22.5 - 21 * value / top).toFixed(1)}`);
  return points.length > 1 ? `M${points.join("L")}` : "";
}

const number = (value) => (value >= 100 ? Math.round(value).toLocaleString("en") : String(value));

function size(bytes) {
  for (const unit of ["B", "kB", "MB"]) {
    if (bytes < 1000) return `${bytes < 10 ? Math.round(bytes * 10) / 10 : Math.round(bytes)} ${unit}`;
    bytes /= 1000;
  }
  return `${Math.round(bytes * 10) / 10} GB`;
}

// What flows, in a few words: the most telling figure first.
function words(rate) {
  const parts = [];
  if (rate.requests) parts.push([number(rate.requests), "req/s"]);
  else if (rate.connections) parts.push([number(rate.connections), "conn/s"]);
  else if (rate.in || rate.out) parts.push([size(rate.in + rate.out), "/s"]);
  if (rate.p50 !== undefined) parts.push([`${number(rate.p50)}`, "ms"]);
  if (rate.open) parts.push([number(rate.open), "open"]);
  const nodes = parts.flatMap(([value, unit], n) => [n ? " · " : "", make("b", "", value), ` ${unit}`]);
  const failed = (rate.failed || 0) + rate.refused;
  if (failed) nodes.push(" · ", make("span", "bad", `${number(failed)} failed/s`));
  return nodes;
}

export { number };
