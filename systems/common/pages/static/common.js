// What the pages of the systems share: requests, signing in, following changes, rows that keep their place, and texts.
// All texts go into a page as text, never as markup.

export const $ = (id) => document.getElementById(id);

// Returns a new element: element("p", { className: "quiet" }, "text", anotherElement).
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// -- requests -------------------------------------------------------------------------------------------------------
const ANSWER_MS = 15000;
let skew = 0; // the server's clock minus ours, which may be wrong by hours

export const now = () => Date.now() + skew;

// An answer that refuses. Its message is for people.
export class Problem extends Error {
  constructor(status, body) {
    super(body.message || body.detail || "Something unexpected went wrong.");
    this.status = status;
    this.body = body;
  }
}

// Sends a request and returns the JSON of its answer. The body is a form, a file or a value. Throws Problem, or TypeError without a connection.
export async function ask(method, path, body, headers = {}) {
  const options = { method, headers, credentials: "same-origin", signal: AbortSignal.timeout(ANSWER_MS) };
  if (body instanceof FormData || body instanceof Blob) {
    options.body = body;
    delete options.signal; // an upload takes as long as it takes
  } else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "content-type": "application/json", ...headers };
  }
  const answer = await fetch(path, options);
  const date = Date.parse(answer.headers.get("date"));
  if (date && Math.abs(date - Date.now()) > 2000) skew = date - Date.now();
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, found);
  return found;
}

// Returns the line for people about an error of `ask`.
export function lineOf(error) {
  return error instanceof Problem ? error.message : "No connection to the server. Try again in a moment.";
}

// -- signing in -----------------------------------------------------------------------------------------------------
// Returns the session, as GET /session shows it, once there is one. The address may carry a key behind #key=; it is
// exchanged for a cookie and taken out of the address. Without one the page asks for a key.
export async function signIn(hint) {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  let refused = "";
  if (key) {
    history.replaceState(null, "", location.pathname);
    await ask("POST", "/session", { key }).catch((error) => { refused = lineOf(error); });
  }
  const session = await ask("GET", "/session").catch(() => null);
  if (session === null) return later(signIn, hint);
  $("app").hidden = !session.caller;
  if (!session.caller) return askForKey(hint, refused);
  if (session.can_sign_out) showCaller(session.caller);
  return session;
}

function later(act, ...given) {
  offline(true);
  return new Promise((done) => setTimeout(() => done(act(...given)), 2000)).finally(() => offline(false));
}

function askForKey(hint, refused) {
  const input = element("input", { id: "key", type: "password", autocomplete: "off", required: true, spellcheck: false });
  const line = element("p", { className: "message bad", role: "alert", textContent: refused });
  const form = element("form", { id: "sign-in", className: "card" }, element("h2", { textContent: "Sign in" }), element("p", { className: "quiet", textContent: hint }),
    element("label", { htmlFor: "key", textContent: "Your key" }), input, line, element("button", { className: "primary", textContent: "Sign in" }));
  $("app").before(form);
  input.focus();
  return new Promise((done) => {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        await ask("POST", "/session", { key: input.value.trim() });
        form.remove();
        done(signIn(hint));
      } catch (error) {
        setText(line, lineOf(error));
        input.select();
      }
    });
  });
}

function showCaller(caller) {
  const out = element("button", { id: "sign-out", className: "link", type: "button", textContent: "Sign out" });
  out.addEventListener("click", async () => {
    await ask("DELETE", "/session").catch(() => {});
    location.reload();
  });
  $("account").replaceChildren(element("span", { className: "quiet owner", textContent: caller.owner || caller.role, title: caller.owner || "" }), " ", out);
}

// -- following changes ----------------------------------------------------------------------------------------------
const SAFETY_MS = 15000, WITHOUT_STREAM_MS = 3000, LONGEST_MS = 20000, APART_MS = 250;

// Calls *load* now, after each change that the server reports, and every few seconds without its stream. A hidden page
// asks for nothing. *load* may return how many milliseconds later it wants to be called again at the latest. Returns a
// function that asks for one more load, for after an action.
export function follow(load) {
  let stream = null, timer = 0, loading = false, again = false, misses = 0, isLive = false, wanted = 0;

  async function read() {
    if (loading) { again = true; return; }
    if (document.hidden) return;
    loading = true;
    again = false;
    clearTimeout(timer);
    try {
      wanted = await load();
      misses = 0;
    } catch (error) {
      if (error instanceof Problem && error.status === 401) { location.reload(); return; }
      misses += 1;
    }
    offline(misses >= 2);
    loading = false;
    timer = setTimeout(read, again ? APART_MS : pause());
  }

  function pause() {
    if (misses) return Math.min(LONGEST_MS, 500 * 2 ** Math.min(misses, 6));
    return wanted || (isLive ? SAFETY_MS : WITHOUT_STREAM_MS);
  }

  function listen() {
    stream = new EventSource("/changes");
    stream.addEventListener("changed", () => { isLive = true; read(); });
    stream.addEventListener("error", () => {
      isLive = false;
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => { if (!document.hidden) listen(); }, SAFETY_MS);
      read();
    });
  }

  document.addEventListener("visibilitychange", () => {
    if (stream) stream.close();
    isLive = false;
    if (document.hidden) clearTimeout(timer);
    else { listen(); read(); }
  });
  if (!document.hidden) listen();
  read();
  return read;
}

let offlineLine = null;
function offline(is) {
  if (!is && !offlineLine) return;
  if (!offlineLine) {
    offlineLine = element("p", { id: "offline", className: "banner bad", role: "status", textContent: "No connection to the server. Trying again …" });
    document.querySelector("main").prepend(offlineLine);
  }
  offlineLine.hidden = !is;
}

// -- rows -----------------------------------------------------------------------------------------------------------
// A list whose elements are made from a template and keep their place while their contents change.
export class Rows {
  constructor(list, template, { prepare = () => {}, draw }) {
    this.list = list;
    this.template = template;
    this.prepare = prepare; // called once with each new element, and a function that returns its item
    this.draw = draw; // called with the element and the item, each time
    this.known = new Map(); // key → {element, item}
  }

  // Draws *item* under *key* and returns its element. A new one is not in the list yet.
  put(key, item) {
    let row = this.known.get(key);
    if (!row) {
      row = { element: this.template.content.firstElementChild.cloneNode(true), item };
      row.element.dataset.id = key;
      this.known.set(key, row);
      this.prepare(row.element, () => row.item);
    }
    const before = row.item;
    row.item = item;
    this.draw(row.element, item, before);
    return row.element;
  }

  // Shows these items, in this order, and removes all others.
  show(items, keyOf) {
    const keys = items.map(keyOf);
    items.forEach((item, place) => {
      const made = this.put(keys[place], item);
      if (this.list.children[place] !== made) this.list.insertBefore(made, this.list.children[place] || null);
    });
    const kept = new Set(keys);
    for (const [key, row] of this.known) if (!kept.has(key)) this.remove(key, row);
  }

  remove(key, row = this.known.get(key)) {
    row?.element.remove();
    this.known.delete(key);
  }

  // Draws all again: what they show depends on the time.
  redraw() {
    for (const row of this.known.values()) this.draw(row.element, row.item, row.item);
  }
}

// -- messages -------------------------------------------------------------------------------------------------------
const NOTICE_MS = 12000;
let noticeTimer = 0;

// Shows a message that belongs to no row, for some seconds.
export function notice(text, bad = false) {
  let line = $("notice");
  if (!line) document.body.append((line = element("p", { id: "notice", role: "alert" })));
  clearTimeout(noticeTimer);
  line.className = bad ? "notice bad" : "notice";
  line.hidden = false;
  setText(line, text);
  noticeTimer = setTimeout(() => { line.hidden = true; }, NOTICE_MS);
}

// Reports a change to screen readers.
export function announce(text) {
  let line = $("announcement");
  if (!line) {
    line = element("div", { id: "announcement", className: "unseen", role: "status" });
    line.setAttribute("aria-live", "polite");
    document.body.append(line);
  }
  line.textContent = text;
}

// -- files -----------------------------------------------------------------------------------------------------------
// Calls *take* with the files that are chosen in *input*, or dropped anywhere on the page.
export function takeFiles(input, take) {
  let depth = 0;
  const dragging = (is) => document.body.classList.toggle("dragging", is);
  input.addEventListener("change", () => {
    take([...input.files]);
    input.value = "";
  });
  addEventListener("dragenter", (event) => { event.preventDefault(); depth += 1; dragging(true); });
  addEventListener("dragleave", () => { depth = Math.max(0, depth - 1); dragging(depth > 0); });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    depth = 0;
    dragging(false);
    take([...event.dataTransfer.files]);
  });
}

// -- texts ----------------------------------------------------------------------------------------------------------
export function sizeOf(bytes) {
  if (!bytes) return "";
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

export function timeOf(moment) {
  const at = new Date(moment), today = new Date().toDateString() === at.toDateString();
  return today ? at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

// Returns how long it is until *moment*: "in 40 s".
export function until(moment) {
  const seconds = Math.ceil((Date.parse(moment) - now()) / 1000);
  return seconds <= 1 ? "in a moment" : `in ${span(seconds)}`;
}

export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}
