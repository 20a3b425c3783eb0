// Elements of the live page: made of texts, never of markup; links lead to http, https and the page's own documentation.
const SVG = "http://www.w3.org/2000/svg", SHOWN = 2400;

export const find = (id) => document.getElementById(id);

export function make(tag, kind, ...content) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...content);
  return element;
}

export function drawn(tag, attributes, ...content) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...content);
  return element;
}

export function titled(element, text) {
  element.title = text;
  return element;
}

export const label = (words) => make("span", "unseen", words);

export function button(kind, act, ...content) {
  const element = make("button", kind, ...content);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}

// A link that opens beside the page, or the text alone where it leads nowhere.
export function link(kind, url, ...content) {
  if (!/^https?:\/\/[^/]/.test(url ?? "")) return make("span", kind, ...content);
  return Object.assign(make("a", kind, ...content), { href: url, target: "_blank", rel: "noopener noreferrer" });
}

// What the documentation has about a reason.
export function help(place, ...content) {
  if (!/^[\w/-]+\.md#[\w-]+$/.test(place ?? "")) return "";
  return Object.assign(make("a", "help", ...content), { href: `/docs/${place}`, target: "_blank" });
}

export const copier = (text, what) => Object.assign(button("copy", () => copy(text, what), "Copy"), { ariaLabel: `Copy ${what}` });

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed, as in a window without focus
    const field = Object.assign(make("textarea", "unseen"), { value: text });
    const focused = document.activeElement;
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    focused?.focus({ preventScroll: true });
    if (!isCopied) return say(`Your browser doesn't let a page copy; here it is: ${text}`);
  }
  say(`Copied ${what}`);
}

let fading = 0;
export function say(sentence) {
  find("toast").textContent = sentence;
  find("toast").classList.add("shown");
  clearTimeout(fading);
  fading = setTimeout(() => find("toast").classList.remove("shown"), SHOWN);
}

export const clock = (at) => new Date(at * 1000).toLocaleTimeString(undefined, { hourCycle: "h23" });

export const number = (value) => (value >= 100 ? Math.round(value).toLocaleString("en") : String(value));

export const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

export function size(bytes) {
  for (const unit of ["B", "kB", "MB"]) {
    if (bytes < 1000) return `${bytes < 10 ? Math.round(bytes * 10) / 10 : Math.round(bytes)} ${unit}`;
    bytes /= 1000;
  }
  return `${Math.round(bytes * 10) / 10} GB`;
}
