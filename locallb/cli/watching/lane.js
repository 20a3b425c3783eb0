// One lane: a Service from its addresses through its proxy to its backends, drawn from plain data and always as text.
import { button, clock, copier, copy, drawn, help, label, link, make, number, say, size, titled } from "/dom.js";

const STEP = 32, GAP = 52, SEEN = 60, LINES = 200;

const told = (data) => [data.state, data.reason, ...data.notices.map(([reason]) => reason)].filter(Boolean).join(", ");

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
    this.button = button("proxy", () => this.toggle());
    this.button.tabIndex = -1;
    this.button.setAttribute("aria-expanded", "false");
    this.isSeen = false;
  }

  // Take what is new of it; returns in what sentence that would be told, if it is worth one.
  take(data, isWhole) {
    const before = this.data;
    this.data = { ...data, links: Object.assign(Object.create(null), data.links) }; // of a host `constructor` as well
    this.text = [this.name, told(data), ...data.addresses, ...data.hosts, ...data.ports.flatMap((port) => [port.label, ...port.backends])]
      .join(" ").toLowerCase();
    if (isWhole || this.isSeen || this.isOpen) this.draw();
    else this.sketch();
    return before && told(before) === told(data) ? "" : `${this.name}: ${told(data)}`;
  }

  // It is in sight, or not any more.
  see(isSeen) {
    this.isSeen = isSeen;
    if (isSeen && !this.ports) this.draw();
    if (isSeen) this.flow();
    else this.element.classList.remove("flows");
  }

  // What is far away of many is there as text alone, so that a browser's search finds it.
  sketch() {
    const { data, element } = this;
    this.ports = null;
    this.outline();
    this.button.replaceChildren(make("span", "name", data.name));
    element.replaceChildren(this.button, ` ${data.place} ${data.addresses.join(" ")} ${data.hosts.join(" ")}`);
  }

  outline() {
    const { data, element } = this, rows = Math.max(data.addresses.length, data.ports.length, 1);
    element.className = `lane ${data.state}${element.classList.contains("changed") ? " changed" : ""}`;
    element.style.containIntrinsicSize = `auto ${Math.max(rows * STEP, data.hosts.length ? 66 : 48) + 17}px`;
  }

  draw() {
    const { data, element } = this, focused = element.contains(document.activeElement) ? document.activeElement : null;
    this.outline();
    this.ports = data.ports.map((port) => this.port(port));
    this.inward = wires(data.addresses.length, false);
    this.outward = wires(data.ports.length, true);
    element.replaceChildren(
      make("ul", "addresses", ...data.addresses.map((address) => make("li", "", this.place("address", address)))),
      this.inward,
      make("div", "proxies", this.proxy()),
      this.outward,
      make("ul", "ports", ...this.ports),
    );
    this.reach(this.isReached);
    if (this.isOpen) this.open();
    if (focused) (focused.isConnected ? focused : this.button).focus({ preventScroll: true }); // it was moved, and lost what it had
    this.flow();
  }

  // A text that leads to where it is found.
  place(what, text) {
    return titled(link("pill", this.data.links[text], label(`${what} `), text), this.data.links[text] ?? text);
  }

  proxy() {
    const { data } = this;
    const hosts = data.hosts.length > 2 ? `${data.hosts.slice(0, 2).join(" ")} +${data.hosts.length - 2}` : data.hosts.join(" ");
    this.spark = drawn("path", { d: "" });
    this.side = data.state === "serving"
      ? drawn("svg", { class: "spark", viewBox: "0 0 72 24", preserveAspectRatio: "none", "aria-hidden": "true" }, this.spark)
      : make("span", "tag", data.reason || data.state);
    const place = titled(make("span", "place", data.place), data.place);
    for (const [reason, message] of data.notices) place.append(" · ", titled(make("b", "notice", reason), message));
    this.button.replaceChildren(
      titled(make("span", "name", data.name), data.name), place,
      ...(hosts ? [titled(make("span", "hosts", hosts), data.hosts.join("\n"))] : []), this.side, label(` ${data.state}`),
    );
    this.button.title = data.message;
    return this.button;
  }

  port(port) {
    const closed = port.state === "serving" ? "" : "closed";
    const [first, second] = port.backends, count = port.backends.length + port.more;
    const words = count > 2 ? `${first}, ${second} +${count - 2}` : port.backends.join(", ");
    const backends = first
      ? titled(make("span", "pill", label("backends "), words), port.backends.join("\n"))
      : titled(make("span", "nowhere", port.reason || "no backends"), port.message);
    return make("li", closed, this.place("port", port.label), make("span", "wire"), backends, make("span", "flow"));
  }

  // Tab stops at one lane, and there at its links.
  reach(isReached) {
    this.isReached = isReached;
    this.button.tabIndex = isReached ? 0 : -1;
    for (const each of this.element.querySelectorAll("a.pill")) each.tabIndex = isReached ? 0 : -1;
  }

  get url() {
    return [...this.data.addresses, ...this.data.hosts].map((text) => this.data.links[text]).find(Boolean) ?? "";
  }

  // What keys do, the same as in the terminal view.
  act(key) {
    const { data, url } = this;
    if (key === "l") return this.log();
    if (key === "c" && data.curl) return copy(data.curl, "a curl command");
    if (key === "y" && (url || data.addresses[0])) return copy(url || data.addresses[0], url || data.addresses[0]);
    if (key === "o" && url) return window.open(url, "_blank", "noopener,noreferrer");
    return say(data.message || "No port of it is known to speak HTTP, so there is no URL.");
  }

  toggle() {
    this.isOpen = !this.isOpen;
    this.button.setAttribute("aria-expanded", String(this.isOpen));
    this.element.querySelector(".all")?.remove();
    if (this.isOpen) this.open();
    else this.silence();
  }

  open() {
    this.logs ??= button("small", () => this.log(), "Show its log");
    this.element.append(this.all());
  }

  all() {
    const { data } = this, list = make("dl", "all"), { links } = data;
    const say = (what, ...lines) => {
      const shown = lines.filter((line) => line && line !== "");
      if (shown.length) list.append(make("dt", "", what), make("dd", "", ...shown.map((line) => make("div", "", ...[line].flat()))));
    };
    const placed = (text) => [link("", links[text], text), " ", copier(links[text] ?? text, links[text] ?? text)];
    const fault = data.message.slice(0, -data.remedy.length || undefined).replace(/; $/, "");
    const hasRemedy = data.remedy && data.message.endsWith(`; ${data.remedy}`);
    say("State", [make("b", "tag", data.state), ` ${hasRemedy ? fault : data.message}`]);
    say("Remedy", hasRemedy && data.remedy, help(data.help, `What ${data.reason} means`));
    if (data.curl) say("Try", [make("code", "", data.curl), " ", copier(data.curl, "a curl command")]);
    say("Addresses", ...data.addresses.map(placed));
    say("Names", ...data.hosts.map(placed));
    for (const port of data.ports) {
      const why = port.message && port.message !== data.message ? port.message : "";
      const way = { pods: "pods", both: "pods and nodePorts", api: "pods through the API server", nodePorts: "nodePorts" }[port.via] ?? "";
      const behind = [...port.backends, ...(port.more ? [`and ${port.more} more`] : [])].join(", ") || "no backends";
      say(`Port ${port.label}`, [make("span", "tag", port.state), ` → ${way} ${behind}`], why && [why, " ", help(port.help, port.reason)]);
    }
    say("Routes", ...data.routes.map((route) => (links[route] ? [link("", links[route], route)] : route)));
    say("Proxy", data.proxy);
    say("Notices", ...data.notices.map(([, message]) => message));
    say("Updated", data.changed && `${clock(data.changed)}, ${Math.round(data.took * 1000)} ms after the change was seen`);
    say("Changes", ...data.changes.map(([at, what, before, after]) => `${clock(at)} ${what}: ${before || "none"} → ${after || "none"}`).reverse());
    if (data.addresses.length) list.append(make("dt", "", "Log"), make("dd", "", this.logs, ...(this.lines ? [this.lines] : [])));
    return list;
  }

  // Its connections and requests as they end, from now on.
  log() {
    if (this.stream) return this.silence();
    if (!this.isOpen) this.toggle();
    this.logs.textContent = "Stop the log";
    this.lines ??= Object.assign(make("ol", "lines"), { tabIndex: 0, ariaLabel: `Log of ${this.name}` });
    this.lines.replaceChildren(make("li", "muted", "Connections and requests appear here as they end."));
    this.logs.after(this.lines);
    this.stream = new EventSource(`/logs?service=${encodeURIComponent(this.name)}`);
    this.stream.onmessage = ({ data }) => this.print(JSON.parse(data));
    this.stream.onerror = () => this.stream?.readyState === EventSource.CLOSED && this.print({ lines: [], lost: 0, notice: "It can't be read here: only the user of locallb watch may, and eight streams at a time." });
  }

  print({ lines, lost, notice }) {
    const items = lines.slice(-LINES).map((parts) => make("li", "", ...parts.map(([text, isBad]) => make("span", isBad ? "bad" : "", text))));
    if (lost) items.push(make("li", "muted", `${lost} lines were left out`));
    if (notice) items.push(make("li", "muted", notice));
    const isAtEnd = this.lines.scrollTop + this.lines.clientHeight >= this.lines.scrollHeight - 4;
    this.lines.append(...items);
    while (this.lines.childElementCount > LINES) this.lines.firstChild.remove();
    if (isAtEnd) this.lines.scrollTop = this.lines.scrollHeight;
  }

  silence() {
    this.stream?.close();
    this.stream = null;
    if (this.logs) this.logs.textContent = "Show its log";
  }

  // One more second of figures; what isn't seen is only remembered.
  step() {
    const busiest = this.busiest;
    if (!busiest && !this.history.length) return;
    this.history.push(busiest);
    if (this.history.length > SEEN) this.history.shift();
    if (this.history.every((value) => !value)) this.history = [];
  }

  get busiest() {
    return this.rates.reduce((sum, rate) => sum + (rate.requests || rate.connections), 0);
  }

  flow() {
    if (!this.isSeen || !this.ports) return;
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
