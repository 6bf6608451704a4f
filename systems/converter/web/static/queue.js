// The queue page: it uploads files and polls the jobs, often at first, then every two seconds. It updates only what has
// changed, so that users keep their place. All texts go into the page as text, never as markup.
"use strict";

const MAX_BYTES = 52428800;
const EVERY_MS = 2000, HIDDEN_MS = 15000, LONGEST_MS = 20000;
const SOON_MS = 200, SLOWER = 1.2; // the first pause after an action, and its growth while files are unfinished
const NOTICE_MS = 12000;
const STATES = { uploading: "Uploading", queued: "Queued", processing: "Converting", complete: "Complete", failed: "Failed", cancelled: "Cancelled" };
const $ = (id) => document.getElementById(id);

const rows = new Map(); // key → {element, job, seenAt}
const uploaded = new Set(); // uploads whose end is not announced yet: they may end before they first appear
let limit = 50, misses = 0, pause = SOON_MS, unfinished = 0, timer = 0, polling = false, pollAgain = false;

// -- texts ----------------------------------------------------------------------------------------------------------
function sizeOf(bytes) {
  if (!bytes) return "";
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

function wait(ms) {
  const seconds = Math.ceil(ms / 1000);
  if (seconds <= 1) return "in a moment";
  if (seconds < 90) return `in ${seconds} s`;
  return seconds < 5400 ? `in ${Math.round(seconds / 60)} min` : `in ${Math.round(seconds / 3600)} h`;
}

function time(moment) {
  const at = new Date(moment), today = new Date().toDateString() === at.toDateString();
  return today ? at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

function messageOf(job, seenAt) {
  if (job.retry_in_ms === null || job.retry_in_ms === undefined) return job.message || "";
  const left = job.retry_in_ms - (performance.now() - seenAt);
  return `${job.message ? job.message + " " : ""}Next try ${wait(left)}.`;
}

// -- rows -----------------------------------------------------------------------------------------------------------
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function rowOf(key) {
  let row = rows.get(key);
  if (!row) {
    const element = $("row").content.firstElementChild.cloneNode(true);
    element.querySelector(".retry").addEventListener("click", () => act(key, "retry"));
    element.querySelector(".cancel").addEventListener("click", () => act(key, "cancel"));
    row = { element, job: null, seenAt: 0 };
    rows.set(key, row);
  }
  return row;
}

function draw(key, job) {
  const row = rowOf(key), find = (name) => row.element.querySelector(name), before = row.job && row.job.state;
  row.job = job;
  row.seenAt = performance.now();
  row.element.dataset.state = job.state;
  row.element.dataset.id = key;
  row.element.classList.toggle("marked", key === marked);
  setText(find(".name"), job.name);
  find(".name").title = job.name;
  const priority = job.priority && job.priority !== "normal" ? `${job.priority} priority` : "";
  setText(find(".facts"), [job.mapping, sizeOf(job.size), priority, job.created_at && time(job.created_at)].filter(Boolean).join(" · "));
  setText(find(".state"), STATES[job.state] || job.state);
  setText(find(".attempt"), attemptsOf(job));
  setText(find(".message"), messageOf(job, row.seenAt));
  const download = find(".download"), retry = find(".retry"), cancel = find(".cancel");
  download.hidden = !job.download;
  if (job.download) {
    download.href = job.download;
    download.setAttribute("aria-label", `Download the XML of ${job.name}`);
  }
  retry.hidden = job.refused || (job.state !== "failed" && !job.can_retry);
  retry.disabled = !job.can_retry;
  cancel.hidden = !job.can_cancel;
  cancel.disabled = false;
  cancel.setAttribute("aria-label", `Cancel ${job.name}`);
  retry.title = job.can_retry ? "" : "The PDF has been removed; upload it again.";
  retry.setAttribute("aria-label", `Retry ${job.name}${job.can_retry ? "" : " (not possible: the PDF has been removed)"}`);
  find(".progress").hidden = job.state !== "uploading";
  const ended = job.state === "complete" || job.state === "failed";
  if (ended && (uploaded.delete(key) || (before && before !== job.state))) {
    announce(`${job.name}: ${STATES[job.state]}. ${job.message || ""}`);
  }
  return row.element;
}

// Reports a change to screen readers.
function announce(text) {
  $("announcement").textContent = text;
}

// Shows a message that belongs to no row, for some seconds.
let noticeTimer = 0, marked = "";
function notice(text, bad = false) {
  const element = $("notice");
  clearTimeout(noticeTimer);
  element.classList.toggle("bad", bad);
  element.hidden = false;
  setText(element, text);
  noticeTimer = setTimeout(() => {
    element.hidden = true;
    marked = "";
    document.querySelectorAll(".row.marked").forEach((row) => row.classList.remove("marked"));
  }, NOTICE_MS);
}

// Puts the rows into the order of *keys* and removes all others.
function arrange(keys) {
  const list = $("rows");
  keys.forEach((key, place) => {
    const element = rows.get(key).element;
    if (list.children[place] !== element) list.insertBefore(element, list.children[place] || null);
  });
  for (const [key, row] of rows) {
    if (!keys.includes(key)) {
      row.element.remove();
      rows.delete(key);
    }
  }
  $("empty").hidden = keys.length > 0;
}

// -- polling --------------------------------------------------------------------------------------------------------
async function poll() {
  if (polling) { pollAgain = true; return; }
  polling = true;
  clearTimeout(timer);
  try {
    const answer = await fetch(`/api/jobs?limit=${limit}`, { credentials: "same-origin", signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error(String(answer.status));
    show(await answer.json());
    misses = 0;
  } catch {
    misses += 1;
  }
  $("offline").hidden = misses < 2;
  polling = false;
  timer = setTimeout(poll, pollAgain ? 0 : nextPause());
  pollAgain = false;
}

function nextPause() {
  if (misses) return Math.min(LONGEST_MS, 1000 * 2 ** Math.min(misses, 5));
  if (document.hidden) return HIDDEN_MS;
  if (!unfinished) return EVERY_MS;
  pause = Math.min(EVERY_MS, pause * SLOWER);
  return pause;
}

// Polls often for a while, since the user waits for the end of an action.
function pollSoon() {
  pause = SOON_MS;
  return poll();
}

function show(answer) {
  const banner = $("banner");
  banner.hidden = !answer.held;
  setText(banner, answer.banner || "");
  const local = [...rows.keys()].filter((key) => key.startsWith("local-"));
  const ids = answer.jobs.map((job) => job.id);
  answer.jobs.forEach((job) => draw(job.id, job));
  arrange([...local, ...ids]);
  $("more").hidden = !answer.next;
  unfinished = answer.jobs.filter((job) => job.state === "queued" || job.state === "processing").length;
  setText($("count"), unfinished ? `${unfinished} in progress` : "");
}

// Sends an action, "retry" or "cancel", for the job *key*.
async function act(key, action) {
  const row = rows.get(key), button = row.element.querySelector(`.${action}`), name = row.job.name;
  button.disabled = true;
  try {
    const answer = await fetch(`/api/jobs/${key}/${action}`, { method: "POST", credentials: "same-origin" });
    const job = await answer.json();
    if (!answer.ok) notice(`${name}: ${job.detail}`, true);
    else if (job.id !== key) showOther(name, job);
    else announce(`${name}: ${action === "retry" ? "queued again" : "cancelled"}`);
    if (answer.ok && action === "retry") remember(key);
  } catch {
    notice("No connection to the server. Try again in a moment.", true);
  }
  button.disabled = false;
  pollSoon();
}

// The jobs that were retried in this browser. Operators can retry jobs too.
const retriedHere = new Set(read("retried"));

function read(name) {
  try { return [].concat(JSON.parse(localStorage.getItem(name)) || []); } catch { return []; }
}

function remember(key) {
  retriedHere.add(key);
  try { localStorage.setItem("retried", JSON.stringify([...retriedHere].slice(-200))); } catch { /* kept until the page closes */ }
}

// Shows the other job that a retry returned: that of a later upload of the same file, or a new one.
function showOther(name, job) {
  notice(job.duplicate ? `${name} was uploaded again later; see the marked row.` : `${name} is converted again; see the marked row.`);
  marked = job.id;
  draw(job.id, job);
  const element = rows.get(job.id).element;
  if (!element.isConnected) $("rows").prepend(element);
  element.scrollIntoView({ block: "nearest" });
}

function attemptsOf(job) {
  const shown = job.attempt > 1 || (job.attempt === 1 && (job.state === "queued" || job.state === "failed"));
  const parts = shown ? [`attempt ${job.attempt} of ${job.max_attempts}`] : [];
  const count = job.manual_retry_count || 0;
  if (count) parts.push(`retried by ${retriedHere.has(job.id) ? "you" : "hand"}${count > 1 ? `, ${count} times` : ""}`);
  return parts.join(" · ");
}

// -- uploading ------------------------------------------------------------------------------------------------------
let localCount = 0;
const waiting = [];
let sending = 0, throttled = false;

function add(files) {
  for (const file of files) {
    const key = `local-${++localCount}`, job = { name: file.name, mapping: $("mapping").value, priority: $("priority").value, size: file.size, state: "uploading", message: "" };
    $("rows").prepend(draw(key, job));
    $("empty").hidden = true;
    if (file.size > MAX_BYTES) end(key, { ...job, state: "failed", message: "File exceeds 50 MB limit." });
    else waiting.push({ key, job, file });
  }
  send();
}

function send() {
  while (!throttled && sending < 3 && waiting.length) {
    const item = waiting.shift(), { key, job, file } = item, form = new FormData(), request = new XMLHttpRequest();
    sending += 1;
    form.append("mapping", job.mapping);
    form.append("priority", job.priority);
    form.append("file", file);
    request.open("POST", "/api/upload");
    request.responseType = "json";
    request.upload.onprogress = (event) => {
      const row = rows.get(key);
      if (row && event.lengthComputable) row.element.querySelector("progress").value = (100 * event.loaded) / event.total;
    };
    request.onloadend = () => {
      sending -= 1;
      const answer = request.response;
      if (request.status === 429) {
        sendLater(Number(request.getResponseHeader("retry-after")) || 5, item);
        return;
      }
      if (answer && (request.status < 300 || answer.job_id)) { // it has a job, which comes with the next poll
        rows.get(key)?.element.remove();
        rows.delete(key);
        if (answer.duplicate) notice(`${job.name} was already uploaded.`);
        else if (answer.job_id) announce(`${job.name}: ${answer.detail}`);
        else {
          announce(`${job.name}: uploaded`);
          uploaded.add(answer.id);
          if (rows.has(answer.id)) draw(answer.id, rows.get(answer.id).job);
        }
      } else {
        const message = answer && answer.detail ? answer.detail : "The upload was interrupted. Send the file again.";
        end(key, { ...job, state: "failed", message });
      }
      pollSoon();
      send();
    };
    request.send(form);
  }
}

// The server limits the rate of uploads: sends the file again after the pause that it asked for, then the others.
function sendLater(seconds, item) {
  throttled = true;
  waiting.unshift(item);
  draw(item.key, { ...item.job, message: "Too many files at a time; this one is sent in a moment." });
  setTimeout(() => { throttled = false; send(); }, seconds * 1000);
}

function end(key, job) {
  draw(key, job);
  const button = rows.get(key).element.querySelector(".retry");
  button.hidden = true; // the file never reached the server, so there is nothing to retry
}

// -- the page -------------------------------------------------------------------------------------------------------
$("file").addEventListener("change", (event) => {
  add(event.target.files);
  event.target.value = "";
});
$("sample").addEventListener("click", async () => {
  try {
    const answer = await fetch("/sample.pdf");
    if (!answer.ok) throw new Error(String(answer.status));
    add([new File([await answer.blob()], "sample.pdf", { type: "application/pdf" })]);
  } catch {
    notice("The sample cannot be loaded. Try again in a moment.", true);
  }
});
$("upload").addEventListener("submit", (event) => event.preventDefault());
$("more").addEventListener("click", () => {
  limit = Math.min(limit + 50, 200);
  poll();
});
let depth = 0;
addEventListener("dragenter", (event) => { event.preventDefault(); depth += 1; document.body.classList.add("dragging"); });
addEventListener("dragleave", () => { depth -= 1; if (depth <= 0) document.body.classList.remove("dragging"); });
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  depth = 0;
  document.body.classList.remove("dragging");
  add(event.dataTransfer.files);
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
setInterval(() => {
  for (const row of rows.values()) {
    if (row.job && row.job.retry_in_ms) setText(row.element.querySelector(".message"), messageOf(row.job, row.seenAt));
  }
}, 1000);
poll();
