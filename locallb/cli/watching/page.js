// The live page: follows the stream, draws what differs, a frame's worth at a time, and only while it is seen.
import { Lane, make, number } from "/lane.js";

const GONE = "locallb watch doesn't answer: it has ended, or too many pages are open. What serves goes on serving; what is shown here may be old.";
const FRAME = 60, SILENCE = 12000, GRACE = 2500, NEWS = 3000, LINES = 100, TROUBLES = 5, FADED = 2600;
const STATES = ["serving", "degraded", "pending", "rejected"];
const find = (id) => document.getElementById(id);
const lanes = new Map(), waiting = new Map(), flows = new Map(), shown = new Set();
let head = null, stream = null, heard = 0, order = [], isFresh = true, frame = 0, lost = "", pulse = {}, reached = null, broken = 0, news = new Map();

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    target.lane.isSeen = isIntersecting;
    if (isIntersecting) target.lane.flow();
  }
}, { rootMargin: "200px" });

function connect() {
  if (stream || document.hidden) return;
  isFresh = true;
  stream = new EventSource("/events");
  stream.onmessage = ({ data }) => take(JSON.parse(data));
  stream.onerror = () => {
    if (stream.readyState === EventSource.CLOSED) { stream = null; setTimeout(connect, 5000); }
    broken ||= setTimeout(() => missing(head?.ended ? "" : GONE), GRACE); // a stream ends now and then, and is opened again
  };
}

function disconnect() {
  stream?.close();
  stream = null;
  clearTimeout(broken);
  broken = 0;
}

function missing(sentence) {
  lost = sentence;
  status();
}

function take(message) {
  heard = Date.now();
  clearTimeout(broken);
  broken = 0;
  lost = "";
  pulse = message.pulse;
  if (message.head) head = message.head;
  if (message.whole) begin(message.lanes);
  for (const name of message.gone || []) waiting.set(name, null);
  for (const [name, data] of Object.entries(message.lanes || {})) waiting.set(name, data);
  if (message.rates) flow(message.rates);
  if (message.log?.length) log(message.log, message.whole);
  schedule();
}

// All that there is comes again: what isn't among it is gone.
function begin(present) {
  for (const name of lanes.keys()) if (!(name in present)) waiting.set(name, null);
  flows.clear();
  for (const lane of lanes.values()) lane.rates = [];
}

function schedule() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    const some = [...waiting].slice(0, FRAME);
    for (const [name, data] of some) {
      waiting.delete(name);
      if (data) put(name, data);
      else remove(name);
    }
    if (some.length) summarize();
    status();
    if (waiting.size) schedule();
    else if (head) isFresh = false;
  });
}

// The place of a name among those that are there.
function place(name) {
  let [low, high] = [0, order.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (order[middle] < name) low = middle + 1; else high = middle;
  }
  return low;
}

function put(name, data) {
  let lane = lanes.get(name);
  if (lane && JSON.stringify(lane.data) === JSON.stringify(data)) return;
  const isNew = !lane;
  if (isNew) {
    lane = new Lane(name);
    lane.rates = flows.get(name) ?? [];
    lanes.set(name, lane);
    const at = place(name);
    find("lanes").insertBefore(lane.element, lanes.get(order[at])?.element ?? null);
    order.splice(at, 0, name);
    seen.observe(lane.element);
    lane.button.addEventListener("focus", () => reach(lane, false));
  }
  const told = lane.take(data);
  lane.element.hidden = !fits(lane);
  if (!isFresh) {
    mark(lane.element);
    if (told) tell(name, told);
  }
}

// Shows for a moment that something is another one.
function mark(element) {
  element.classList.remove("changed");
  clearTimeout(element.faded);
  requestAnimationFrame(() => { // which may be late: it fades after that
    element.classList.add("changed");
    clearTimeout(element.faded);
    element.faded = setTimeout(() => element.classList.remove("changed"), FADED);
  });
}

function remove(name) {
  const lane = lanes.get(name);
  if (!lane) return;
  lanes.delete(name);
  order.splice(place(name), 1);
  seen.unobserve(lane.element);
  const next = lane.button === document.activeElement ? lanes.get(order[Math.min(place(name), order.length - 1)]) : null;
  lane.element.classList.add("gone");
  setTimeout(() => lane.element.remove(), isFresh ? 0 : 900);
  if (next) reach(next, true);
  if (!isFresh) tell(name, `${name}: gone`);
}

// What those hear who don't see it: the latest of each first.
function tell(name, sentence) {
  news.delete(name);
  news.set(name, sentence);
}

function flow(rates) {
  for (const [name, rows] of Object.entries(rates)) {
    const lane = lanes.get(name);
    if (rows.length) flows.set(name, rows); else flows.delete(name);
    if (lane) lane.rates = rows;
  }
}

// Each second: histories go on, and what is seen of figures is drawn.
function step() {
  if (!stream) return;
  if (heard && Date.now() - heard > SILENCE && !lost && !head?.ended) missing("locallb watch hasn't said anything for a while: what is shown here may be old.");
  let [connections, requests] = [0, 0];
  for (const lane of lanes.values()) {
    lane.step();
    lane.flow();
    for (const rate of lane.rates) { connections += rate.connections; requests += rate.requests || 0; }
  }
  totals(connections, requests);
}

function counts() {
  const found = Object.fromEntries(STATES.map((state) => [state, 0]));
  for (const lane of lanes.values()) found[lane.data.state] += 1;
  return found;
}

function summarize() {
  const found = counts();
  for (const state of STATES) {
    const chip = find(`chip-${state}`);
    chip.hidden = !found[state] && !shown.has(state);
    chip.lastChild.textContent = found[state];
  }
  trouble();
  hits();
  if (!lanes.has(reached?.name) && order.length) reach(lanes.get(order[0]), false);
}

// What somebody should look at, orders of faults as well, the gravest first.
function trouble() {
  const gravity = (lane) => STATES.indexOf(lane.data.state) || STATES.length;
  const troubled = [...lanes.values()].filter(({ data }) => (data.state !== "serving" && data.reason !== "Updating") || data.notices.length)
    .sort((one, other) => gravity(one) - gravity(other));
  const items = troubled.slice(0, TROUBLES).map((lane) => {
    const { state, reason, message, notices } = lane.data, [[what, why]] = state === "serving" ? notices : [[state, message || reason]];
    const button = make("button", state, make("span", "tag", what), make("b", "", lane.name), make("span", "why", why));
    button.type = "button";
    button.addEventListener("click", () => { show(lane); });
    return make("li", "", button);
  });
  const text = troubled.slice(0, TROUBLES).map((lane) => lane.name + lane.data.state + lane.data.message + lane.data.notices).join() + troubled.length;
  if (find("trouble").text === text) return;
  find("trouble").text = text;
  find("trouble").hidden = !items.length;
  find("trouble-title").textContent = troubled.length > TROUBLES ? `Needs attention (${troubled.length}), showing ${TROUBLES}` : "Needs attention";
  find("trouble").querySelector("ul").replaceChildren(...items);
  document.title = `${troubled.length ? `(${troubled.length}) ` : ""}Load balancers of ${head?.stack ?? ""}`;
}

function totals(connections, requests) {
  const pairs = [[lanes.size, lanes.size === 1 ? "Service" : "Services"]];
  if (connections) pairs.push([number(Math.round(connections)), "conn/s"]);
  if (requests) pairs.push([number(Math.round(requests)), "req/s"]);
  if (head?.converged) pairs.push([head.open || head.waiting ? head.open || head.waiting : clock(head.converged), head.open ? "being updated" : head.waiting ? "tried again" : "in sync, checked"]);
  const text = pairs.join();
  if (find("totals").text === text) return;
  find("totals").text = text;
  find("totals").replaceChildren(...pairs.map(([value, what]) => make("div", "", make("dt", "", what), make("dd", "", String(value)))));
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString(undefined, { hourCycle: "h23" });

// How the loop is, and what is in the way.
function status() {
  const link = find("link"), stale = Object.entries(head?.stale ?? {}), delays = head?.ended ? [] : head?.delays ?? [];
  const [word, kind] = head?.ended ? ["ended", "lost"] : lost ? ["not live", "lost"] : head ? ["live", "live"] : ["connecting", ""];
  if (link.textContent !== word) { link.textContent = word; link.className = `link ${kind}`; }
  const sentences = [
    head?.ended ? "locallb watch was stopped. What serves goes on serving; this is how it was then, and it is live again as soon as the watch is." : lost,
    !lost && pulse?.stuck, head?.failure,
    ...stale.map(([name, at]) => `Source ${name} can't be read and counts as last read since ${clock(at)}.`),
    ...delays.map(({ party, since, waiting: some }) => `${party}: no answer since ${clock(since)}${some.length ? `; ${some.length} load balancer${some.length === 1 ? " waits" : "s wait"} for it (${some.slice(0, 3).join(", ")}${some.length > 3 ? ` and ${some.length - 3} more` : ""})` : ""}.`),
  ].filter(Boolean);
  const banner = find("banner"), text = sentences.join("\n");
  if (banner.text !== text) {
    banner.text = text;
    banner.hidden = !text;
    banner.className = `banner${head?.ended || ((stale.length || delays.length) && !head.failure && !lost) ? " calm" : ""}`;
    banner.replaceChildren(...sentences.map((sentence) => make("p", "", sentence)));
  }
  const empty = find("empty"), hidden = lanes.size && find("hits").none;
  const words = hidden ? "Nothing here fits the filter." : lanes.size || waiting.size ? "" : !head ? "" : !head.begun ? "The sources are being read." :
    ["There is no Service of type LoadBalancer yet. New Services appear here automatically.", ...head.notices].join("\n");
  if (empty.textContent !== words) empty.textContent = words;
}

function log(entries, isWhole) {
  const items = entries.map((entry) => {
    const time = make("time", "", clock(entry.at));
    return make("li", "", time, make("span", entry.level, entry.text));
  }).reverse();
  const list = find("log");
  if (isWhole) list.replaceChildren(...items); else list.prepend(...items);
  while (list.childElementCount > LINES) list.lastChild.remove();
  find("latest").textContent = `${clock(entries.at(-1).at)}  ${entries.at(-1).text}`;
}

// The filter.
function fits(lane) {
  const query = find("search").value.trim().toLowerCase();
  return (!shown.size || shown.has(lane.data.state)) && query.split(/\s+/).every((word) => lane.text.includes(word));
}

function filter() {
  for (const lane of lanes.values()) lane.element.hidden = !fits(lane);
  history.replaceState(null, "", find("search").value ? `#${encodeURIComponent(find("search").value)}` : location.pathname);
  hits();
  status();
}

function hits() {
  const count = [...lanes.values()].filter((lane) => !lane.element.hidden).length;
  const text = count === lanes.size ? "" : `${count} of ${lanes.size}`;
  find("hits").none = !count;
  if (find("hits").textContent !== text) find("hits").textContent = text;
}

// Keys: one lane is in the order of Tab, the arrows choose which.
function reach(lane, isFocused) {
  if (reached) reached.button.tabIndex = -1;
  reached = lane;
  lane.button.tabIndex = 0;
  if (isFocused) lane.button.focus();
}

function show(lane) {
  if (lane.element.hidden) { find("search").value = ""; for (const state of [...shown]) find(`chip-${state}`).click(); filter(); }
  if (!lane.isOpen) lane.toggle();
  lane.element.scrollIntoView({ block: "center" });
  reach(lane, true);
}

function go(from, by) {
  const visible = order.map((name) => lanes.get(name)).filter((lane) => !lane.element.hidden);
  const at = by === -Infinity ? 0 : by === Infinity ? visible.length - 1 : visible.indexOf(from) + by;
  if (visible[at]) { reach(visible[at], true); visible[at].element.scrollIntoView({ block: "nearest" }); }
}

const MOVES = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
find("lanes").addEventListener("keydown", (event) => {
  if (!(event.key in MOVES) || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  go(event.target.closest(".lane")?.lane, MOVES[event.key]);
});
find("lanes").addEventListener("focus", () => go(null, -Infinity));
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== find("search")) { event.preventDefault(); find("search").focus(); }
  if (event.key === "Escape") { find("search").value = ""; filter(); }
});
find("search").addEventListener("input", filter);
find("search").addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "Enter") { event.preventDefault(); go(null, -Infinity); }
});

for (const state of STATES) {
  const chip = make("button", `chip ${state}`, state, make("b"));
  Object.assign(chip, { type: "button", id: `chip-${state}`, hidden: true });
  chip.setAttribute("aria-pressed", "false");
  chip.addEventListener("click", () => {
    const isOn = !shown.delete(state);
    if (isOn) shown.add(state);
    chip.setAttribute("aria-pressed", String(isOn));
    filter();
    summarize();
  });
  find("chips").append(chip);
}

document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
setInterval(step, 1000);
setInterval(() => {
  if (!news.size) return;
  const sentences = [...news.values()].reverse();
  find("news").textContent = [...sentences.slice(0, 3), ...(sentences.length > 3 ? [`and ${sentences.length - 3} more`] : [])].join(". ");
  news = new Map();
}, NEWS);
try {
  find("search").value = decodeURIComponent(location.hash.slice(1));
} catch { /* no filter of ours */ }
connect();
