// The live page: follows the stream, and draws what differs, a few milliseconds at a time, only while it is seen.
import { button, clock, counted, find, help, make, number, say, titled } from "/dom.js";
import { Lane } from "/lane.js";

const GONE = "locallb watch doesn't answer: it has ended, or too many pages are open. What serves goes on serving; what is shown here may be old.";
const QUIET = "locallb watch hasn't said anything for a while: what is shown here may be old.";
const ENDED = "locallb watch was stopped. What serves goes on serving; this is how it was then, and it is live again as soon as the watch is.";
const NOTHING = "There is no Service of type LoadBalancer yet. New Services appear here automatically.";
const WORK = 8, WHOLE = 500, PAUSE = 150, SHARE = 4, COMMON = 3, SORTED = 5;
const SILENCE = 12000, GRACE = 2500, NEWS = 3000, LINES = 100, TROUBLES = 5, FADED = 2600;
const STATES = ["serving", "degraded", "pending", "rejected"], URGENCY = { degraded: 0, pending: 1, rejected: 2, serving: 4 };
const lanes = new Map(), groups = new Map(), waiting = new Map(), flows = new Map(), shown = new Set();
let head = null, stream = null, heard = 0, order = [], isFresh = true, frame = 0, arranging = 0, arranged = 0, took = 0, steps = 0;
let lost = "", pulse = {}, reached = null, broken = 0, news = new Map();

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) target.lane.see(isIntersecting);
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
  for (const lane of lanes.values()) lane.silence();
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
  if (message.head) { head = message.head; facts(); }
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

// Takes what came, as much as there is time for in a frame.
function schedule() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    const until = performance.now() + WORK;
    for (const [name, data] of waiting) {
      waiting.delete(name);
      if (data) put(name, data);
      else remove(name);
      if (performance.now() > until) break;
    }
    status();
    if (waiting.size) schedule();
    else if (head) isFresh = false;
  });
}

function put(name, data) {
  let lane = lanes.get(name);
  if (lane && JSON.stringify(lane.data) === JSON.stringify(data)) return;
  if (!lane) {
    lane = new Lane(name);
    lane.rates = flows.get(name) ?? [];
    lane.isNew = !isFresh;
    lanes.set(name, lane);
    lane.button.addEventListener("focus", () => reach(lane, false));
  }
  const told = lane.take(data, lanes.size + waiting.size <= WHOLE);
  arrange();
  if (!isFresh) {
    if (!lane.isNew) mark(lane.element);
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
  lane.silence();
  seen.unobserve(lane.element);
  const at = order.indexOf(lane), isFocused = lane.element.contains(document.activeElement);
  if (at >= 0) order.splice(at, 1);
  lane.element.classList.add("gone");
  setTimeout(() => lane.element.remove(), isFresh ? 0 : 900);
  if (isFocused && order.length) reach(order[Math.min(at, order.length - 1)], true);
  if (!isFresh) tell(name, `${name}: gone`);
  arrange();
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
  if (heard && Date.now() - heard > SILENCE && !lost && !head?.ended) missing(QUIET);
  let [connections, requests] = [0, 0];
  for (const lane of lanes.values()) {
    lane.step();
    lane.flow();
    for (const rate of lane.rates) { connections += rate.connections; requests += rate.requests || 0; }
  }
  totals(connections, requests);
  if (find("sort").value === "traffic" && ++steps % SORTED === 0) arrange();
}

// Groups, order and sums are made again soon, for a fifth of the time at most.
function arrange() {
  arranging ||= setTimeout(arrangeNow, Math.max(0, arranged + Math.max(PAUSE, SHARE * took) - performance.now()));
}

function arrangeNow() {
  clearTimeout(arranging);
  const began = performance.now();
  arranging = 0;
  const all = [...lanes.values()], common = causes(all), by = find("group").value, sorting = find("sort").value;
  for (const lane of all) {
    lane.group = by === "cause" ? common.get(causeOf(lane))?.id ?? "" : by === "nothing" ? "" : by === "cluster" ? lane.data.cluster : lane.data.place;
    lane.rank = RANKS[sorting](lane);
  }
  all.sort((one, other) => (one.group === "") - (other.group === "") || compare(one.group, other.group) || compare(one.rank, other.rank) || compare(one.name, other.name));
  order = [];
  const present = new Set();
  for (const lane of all) {
    if (lane.group && !present.has(lane.group)) { present.add(lane.group); order.push(groupOf(lane.group, by)); }
    groups.get(lane.group)?.lanes.push(lane);
    order.push(lane);
  }
  for (const [id, group] of groups) if (!present.has(id)) { group.element.remove(); groups.delete(id); }
  for (const group of groups.values()) group.draw(common);
  settle();
  fit();
  summarize(common);
  if (!order.includes(reached) && order.length) reach(order.find((item) => !item.element.hidden) ?? order[0], false);
  arranged = performance.now();
  took = arranged - began;
}

const compare = (one, other) => (one < other ? -1 : one > other ? 1 : 0);

const RANKS = {
  urgency: ({ data }) => (data.state === "serving" && data.notices.length ? 3 : data.reason === "Updating" ? 3.5 : URGENCY[data.state]),
  name: () => 0,
  address: ({ data }) => (data.addresses[0] ?? "~").replace(/\d+/g, (digits) => digits.padStart(4, "0")),
  traffic: (lane) => -lane.busiest,
};

const isTroubled = ({ data }) => data.state !== "serving" && data.reason !== "Updating";

const causeOf = ({ data }) => (data.remedy ? `${URGENCY[data.state]}${data.reason}\n${data.remedy}` : "");

// What several have in common that don't serve: one cause, one remedy.
function causes(all) {
  const found = new Map();
  for (const lane of all) {
    const id = isTroubled(lane) ? causeOf(lane) : "";
    if (!id) continue;
    if (!found.has(id)) found.set(id, { id, lanes: [] });
    found.get(id).lanes.push(lane);
  }
  for (const [id, { lanes: some }] of found) if (some.length < COMMON) found.delete(id);
  return found;
}

// Elements come into their order; one that is elsewhere is moved, and keeps the focus.
function settle() {
  const list = find("lanes"), focused = document.activeElement, isWithin = list.contains(focused);
  const next = (element) => { while (element?.classList.contains("gone")) element = element.nextSibling; return element; };
  let at = next(list.firstChild);
  for (const item of order) {
    if (at && at !== item.element && next(at.nextSibling) === item.element) { const moved = at; at = item.element; moved.remove(); }
    if (at === item.element) { at = next(at.nextSibling); continue; }
    const isNew = !item.element.isConnected;
    list.insertBefore(item.element, at);
    if (isNew && item instanceof Lane) seen.observe(item.element);
    if (item.isNew) { item.isNew = false; mark(item.element); }
  }
  if (isWithin && document.activeElement !== focused && focused.isConnected) focused.focus({ preventScroll: true });
}

// The head of a group, which opens and closes it.
class Group {
  constructor(id, by) {
    Object.assign(this, { id, by, lanes: [], isOpen: by !== "cause" });
    this.button = button("fold", () => { this.isOpen = !this.isOpen; arrangeNow(); });
    this.button.tabIndex = -1;
    this.button.addEventListener("focus", () => reach(this, false));
    this.more = make("span", "why");
    this.element = make("li", "group", this.button, this.more);
  }

  draw(common) {
    const found = common.get(this.id)?.lanes[0].data;
    const states = STATES.map((state) => [state, this.lanes.filter(({ data }) => data.state === state).length]).filter(([, count]) => count);
    const text = [this.isOpen, this.lanes.length, states].join();
    if (this.text === text) return;
    this.text = text;
    this.element.className = `group ${states.at(-1)[0]}`;
    this.button.setAttribute("aria-expanded", String(this.isOpen));
    this.button.replaceChildren(
      make("b", "", found ? counted(this.lanes.length, "Service") : this.id || "this host"),
      ...(found ? [make("span", "tag", found.reason)] : states.map(([state, count]) => make("span", `tag ${state}`, `${count} ${state}`))),
    );
    this.more.replaceChildren(...(found ? [found.remedy, " ", help(found.help, `What ${found.reason} means`)] : []));
  }

  reach(isReached) {
    this.button.tabIndex = isReached ? 0 : -1;
  }
}

function groupOf(id, by) {
  let group = groups.get(id);
  if (group?.by !== by) {
    group?.element.remove();
    groups.set(id, group = new Group(id, by));
  }
  group.lanes = [];
  return group;
}

function summarize(common) {
  const found = Object.fromEntries(STATES.map((state) => [state, 0]));
  for (const lane of lanes.values()) found[lane.data.state] += 1;
  for (const state of STATES) {
    const chip = find(`chip-${state}`);
    chip.hidden = !found[state] && !shown.has(state);
    chip.lastChild.textContent = found[state];
  }
  trouble(common);
  status();
}

// What somebody should look at, orders of faults as well, one cause in one line, the gravest first.
function trouble(common) {
  const troubled = [...lanes.values()].filter((lane) => isTroubled(lane) || lane.data.notices.length);
  const entries = new Map();
  for (const lane of troubled) {
    const { state, reason, message, remedy, notices } = lane.data, cause = common.get(causeOf(lane));
    const [what, said] = state === "serving" ? notices[0] : [reason || state, cause ? remedy : message || reason];
    const name = cause ? counted(cause.lanes.length, "Service") : lane.name;
    const why = said.startsWith(`${lane.name}`) ? said.slice(lane.name.length).replace(/^[: ]+/, "") : said;
    const gravity = RANKS.urgency(lane);
    entries.set(cause?.id ?? lane.name, { lane, cause, state, what, why, name, gravity, place: state === "serving" ? "" : lane.data.help });
  }
  const some = [...entries.values()].sort((one, other) => one.gravity - other.gravity);
  const text = JSON.stringify([some.length, some.slice(0, TROUBLES).map(({ what, why, name, state }) => [what, why, name, state])]);
  if (find("trouble").text === text) return;
  find("trouble").text = text;
  find("trouble").hidden = !some.length;
  find("trouble-title").textContent = some.length > TROUBLES ? `Needs attention (${some.length} causes, the first ${TROUBLES})` : "Needs attention";
  find("trouble").querySelector("ul").replaceChildren(...some.slice(0, TROUBLES).map(({ lane, cause, state, what, why, name, place }) => {
    const open = button("", () => unfold(groups.get(cause?.id)) || show(lane), make("span", "tag", what), make("b", "", name), make("span", "why", why));
    return make("li", state, open, help(place, titled(make("span", "", "?"), `What ${what} means`)));
  }));
  document.title = `${troubled.length ? `(${troubled.length}) ` : ""}Load balancers of ${head?.stack ?? ""}`;
}

function totals(connections, requests) {
  const pairs = [[number(lanes.size), lanes.size === 1 ? "Service" : "Services"]];
  if (connections) pairs.push([number(Math.round(connections)), "conn/s"]);
  if (requests) pairs.push([number(Math.round(requests)), "req/s"]);
  if (head?.open || head?.waiting) pairs.push([number(head.open || head.waiting), head.open ? "being updated" : "tried again"]);
  else if (head?.converged) pairs.push([clock(head.converged), "checked"]);
  const text = pairs.join();
  if (find("totals").text === text) return;
  find("totals").text = text;
  find("totals").replaceChildren(...pairs.map(([value, what]) => make("div", what === "checked" ? "first" : "", make("dt", "", what), make("dd", "", value))));
}

// The stack as a whole: where its Services come from, what is left of its pools, and how the loop is.
function facts() {
  const { sources, moreSources, stale, pools, proxies: [count, answering], converged, planned, version, pid, failure } = head;
  const list = [];
  const say = (what, ...items) => items.length && list.push(make("dt", "", what), make("dd", "", ...items));
  const item = (isWell, ...content) => make("span", isWell ? "item" : "item bad", ...content);
  say("Sources", ...sources.map((name) => item(!Object.hasOwn(stale, name), name, Object.hasOwn(stale, name) ? ` last read ${clock(stale[name])}` : " read")), ...(moreSources ? [`and ${moreSources} more`] : []));
  say("Pools", ...pools.map(({ pool, family, used, size, free }) => {
    const meter = Object.assign(make("meter"), { max: size, value: size - free, ariaLabel: `${pool}: ${used} of ${size} used` });
    return item(free > 0, meter, ` ${pool} ${family}: ${number(used)} of ${number(size)} used, ${number(free)} free`);
  }));
  say("Proxies", item(answering >= count, `${counted(count, "proxy").replace("proxys", "proxies")}, ${answering >= count ? "all answer" : `${answering} answer`}`));
  say("Loop", item(!failure, failure ? "failing" : converged ? `checked ${clock(converged)}` : "converging", planned ? `, planned in ${Math.round(planned * 1000)} ms` : ""));
  say("Version", item(true, `local-lb ${version}, pid ${pid}`));
  find("facts").replaceChildren(...list);
}

// How the loop is, and what is in the way.
function status() {
  const badge = find("link"), stale = Object.entries(head?.stale ?? {}), delays = head?.ended ? [] : head?.delays ?? [];
  const [word, kind] = head?.ended ? ["ended", "lost"] : lost ? ["not live", "lost"] : head ? ["live", "live"] : ["connecting", ""];
  if (badge.textContent !== word) { badge.textContent = word; badge.className = `link ${kind}`; }
  const sentences = [
    head?.ended ? ENDED : lost,
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
    [NOTHING, ...head.notices].join("\n");
  if (empty.textContent !== words) empty.textContent = words;
}

function log(entries, isWhole) {
  const items = entries.map(({ at, level, text, service, help: place }) => {
    const lane = () => (lanes.has(service) ? show(lanes.get(service)) : say("It isn't there any more."));
    return make("li", "", make("time", "", clock(at)), make("span", level, text, " ", ...(service ? [button("small", lane, "Show it")] : []), " ", help(place, "What that means")));
  }).reverse();
  const list = find("log");
  if (isWhole) list.replaceChildren(...items.slice(0, LINES)); else list.prepend(...items.slice(0, LINES));
  while (list.childElementCount > LINES) list.lastChild.remove();
  find("latest").textContent = `${clock(entries.at(-1).at)}  ${entries.at(-1).text}`;
}

// The filter: which lanes are shown, and of which groups.
function fit() {
  const terms = find("search").value.trim().toLowerCase().split(/\s+/), isFiltered = Boolean(terms[0] || shown.size);
  let count = 0;
  for (const group of groups.values()) group.found = 0;
  for (const lane of lanes.values()) {
    const group = groups.get(lane.group), fits = (!shown.size || shown.has(lane.data.state)) && terms.every((word) => lane.text.includes(word));
    count += fits;
    if (group) group.found += fits;
    const isHidden = !fits || Boolean(group && !group.isOpen && !isFiltered && !lane.isOpen);
    if (lane.element.hidden !== isHidden) lane.element.hidden = isHidden;
  }
  for (const group of groups.values()) group.element.hidden = !group.found;
  const text = count === lanes.size ? "" : `${number(count)} of ${number(lanes.size)}`;
  find("hits").none = !count;
  if (find("hits").textContent !== text) find("hits").textContent = text;
}

function filter() {
  fit();
  remember();
  status();
}

// What is chosen is in the address, which can be kept.
function remember() {
  const terms = new URLSearchParams(["search", "group", "sort"].map((id) => [id, find(id).value]).filter(([id, value]) => value && value !== USUAL[id]));
  history.replaceState(null, "", terms.size ? `#${terms}` : location.pathname);
}

const USUAL = { search: "", group: "cause", sort: "urgency" };

function arrangeAll() {
  remember();
  arrangeNow();
}

function cycle(id) {
  const select = find(id);
  select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
  say(`${id === "sort" ? "Sorted" : "Grouped"} by ${select.value}`);
  arrangeAll();
}

// Keys: one line is in the order of Tab, the arrows choose which.
function reach(item, isFocused) {
  if (reached !== item) reached?.reach(false);
  reached = item;
  item.reach(true);
  if (isFocused) item.button.focus();
}

function show(lane) {
  if (!lane.isOpen) lane.toggle();
  fit();
  if (lane.element.hidden) { find("search").value = ""; for (const state of [...shown]) find(`chip-${state}`).click(); filter(); }
  lane.element.scrollIntoView({ block: "center" });
  reach(lane, true);
}

function unfold(group) {
  if (!group) return false;
  group.isOpen = true;
  arrangeNow();
  group.element.scrollIntoView({ block: "center" });
  reach(group, true);
  return true;
}

function go(from, by) {
  const visible = order.filter((item) => !item.element.hidden);
  const at = by === -Infinity ? 0 : by === Infinity ? visible.length - 1 : Math.max(0, Math.min(visible.length - 1, visible.indexOf(from) + by));
  if (visible[at]) { reach(visible[at], true); visible[at].element.scrollIntoView({ block: "nearest" }); }
}

const MOVES = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
const DONE = { "/": () => find("search").focus(), g: () => cycle("group"), s: () => cycle("sort"), "?": () => find("keys").showModal() };
find("lanes").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const element = event.target.closest("#lanes > li");
  if (event.key in MOVES && !event.target.closest(".lines")) {
    event.preventDefault();
    go(order.find((item) => item.element === element), MOVES[event.key]);
  } else if ("oycl".includes(event.key) && element?.lane) {
    event.preventDefault();
    element.lane.act(event.key);
  }
});
find("lanes").addEventListener("focus", () => go(null, -Infinity));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || find("keys").open) return;
  if (event.key === "Escape") { find("search").value = ""; filter(); }
  if (event.target.closest?.("input, select, textarea") || !(event.key in DONE)) return;
  event.preventDefault();
  DONE[event.key]();
});
find("search").addEventListener("input", filter);
find("search").addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "Enter") { event.preventDefault(); go(null, -Infinity); }
});
for (const id of ["group", "sort"]) find(id).addEventListener("change", arrangeAll);
find("show-keys").addEventListener("click", () => find("keys").showModal());

for (const state of STATES) {
  const chip = button(`chip ${state}`, () => {
    const isOn = !shown.delete(state);
    if (isOn) shown.add(state);
    chip.setAttribute("aria-pressed", String(isOn));
    filter();
  }, state, make("b"));
  Object.assign(chip, { id: `chip-${state}`, hidden: true });
  chip.setAttribute("aria-pressed", "false");
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
for (const [id, value] of new URLSearchParams(location.hash.slice(1))) if (Object.hasOwn(USUAL, id)) find(id).value = value;
for (const id of ["group", "sort"]) find(id).value ||= USUAL[id];
connect();
