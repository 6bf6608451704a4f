// The queue page: uploads files, asks for the rows every two seconds, and changes only what has changed, so that
// nobody loses their place. All texts go into the page as text, never as markup.
"use strict";

const MAX_BYTES = 52428800;
const EVERY_MS = 2000, HIDDEN_MS = 15000, LONGEST_MS = 20000;
const STATES = { uploading: "Uploading", queued: "Queued", processing: "Converting", complete: "Complete", failed: "Failed", cancelled: "Cancelled" };
const $ = (id) => document.getElementById(id);

const rows = new Map(); // key → {element, job, seenAt}
const sent = new Set(); // uploads whose end is not told yet: it may come before they are first seen
let limit = 50, misses = 0, timer = 0, asking = false, again = false;

// -- words ----------------------------------------------------------------------------------------------------------
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
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function rowOf(key) {
  let row = rows.get(key);
  if (!row) {
    const element = $("row").content.firstElementChild.cloneNode(true);
    element.querySelector(".retry").addEventListener("click", () => retry(key));
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
  put(find(".name"), job.name);
  find(".name").title = job.name;
  put(find(".facts"), [job.mapping, sizeOf(job.size), job.created_at && time(job.created_at)].filter(Boolean).join(" · "));
  put(find(".state"), STATES[job.state] || job.state);
  const tries = job.attempt > 1 || (job.attempt === 1 && (job.state === "queued" || job.state === "failed"));
  put(find(".attempt"), tries ? `attempt ${job.attempt} of ${job.max_attempts}` : "");
  put(find(".message"), messageOf(job, row.seenAt));
  const download = find(".download"), again = find(".retry");
  download.hidden = !job.download;
  if (job.download) {
    download.href = job.download;
    download.setAttribute("aria-label", `Download the XML of ${job.name}`);
  }
  again.hidden = job.state !== "failed";
  again.disabled = !job.can_retry;
  again.title = job.can_retry ? "" : "The PDF is not here any more; upload it again.";
  again.setAttribute("aria-label", `Retry ${job.name}${job.can_retry ? "" : " (not possible: the PDF is not here any more)"}`);
  find(".progress").hidden = job.state !== "uploading";
  const ended = job.state === "complete" || job.state === "failed";
  if (ended && (sent.delete(key) || (before && before !== job.state))) {
    tell(`${job.name}: ${STATES[job.state]}. ${job.message || ""}`);
  }
  return row.element;
}

function tell(text) {
  $("told").textContent = text;
}

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

// -- asking ---------------------------------------------------------------------------------------------------------
async function ask() {
  if (asking) { again = true; return; }
  asking = true;
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
  asking = false;
  const pause = misses ? Math.min(LONGEST_MS, 1000 * 2 ** Math.min(misses, 5)) : document.hidden ? HIDDEN_MS : EVERY_MS;
  timer = setTimeout(ask, again ? 0 : pause);
  again = false;
}

function show(answer) {
  const banner = $("banner");
  banner.hidden = !answer.held;
  put(banner, answer.banner || "");
  const sending = [...rows.keys()].filter((key) => key.startsWith("local-"));
  const ids = answer.jobs.map((job) => job.id);
  answer.jobs.forEach((job) => draw(job.id, job));
  arrange([...sending, ...ids]);
  $("more").hidden = !answer.next;
  const open = answer.jobs.filter((job) => job.state === "queued" || job.state === "processing").length;
  put($("count"), open ? `${open} under way` : "");
}

async function retry(key) {
  const row = rows.get(key), button = row.element.querySelector(".retry");
  button.disabled = true;
  try {
    const answer = await fetch(`/api/jobs/${key}/retry`, { method: "POST", credentials: "same-origin" });
    if (!answer.ok) tell((await answer.json()).detail);
  } catch {
    tell("No connection to the server.");
    button.disabled = false;
  }
  ask();
}

// -- uploading ------------------------------------------------------------------------------------------------------
let made = 0;
const waiting = [];
let sending = 0;

function add(files) {
  for (const file of files) {
    const key = `local-${++made}`, job = { name: file.name, mapping: $("mapping").value, size: file.size, state: "uploading", message: "" };
    $("rows").prepend(draw(key, job));
    $("empty").hidden = true;
    if (file.size > MAX_BYTES) end(key, { ...job, state: "failed", message: "File exceeds 50 MB limit." });
    else waiting.push({ key, job, file });
  }
  send();
}

function send() {
  while (sending < 3 && waiting.length) {
    const { key, job, file } = waiting.shift(), form = new FormData(), request = new XMLHttpRequest();
    sending += 1;
    form.append("mapping", job.mapping);
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
      if (answer && (request.status < 300 || answer.job_id)) { // it is on record, and comes with the other rows
        rows.get(key)?.element.remove();
        rows.delete(key);
        if (answer.duplicate) tell(`${job.name} is here already.`);
        else if (answer.job_id) tell(`${job.name}: ${answer.detail}`);
        else {
          tell(`${job.name}: uploaded`);
          sent.add(answer.id);
          if (rows.has(answer.id)) draw(answer.id, rows.get(answer.id).job);
        }
      } else {
        const said = answer && answer.detail ? answer.detail : "The upload was cut off. Send the file again.";
        end(key, { ...job, state: "failed", message: said });
      }
      ask();
      send();
    };
    request.send(form);
  }
}

function end(key, job) {
  draw(key, job);
  const button = rows.get(key).element.querySelector(".retry");
  button.hidden = true; // it never reached the server: there is nothing to retry
}

// -- the page -------------------------------------------------------------------------------------------------------
$("file").addEventListener("change", (event) => {
  add(event.target.files);
  event.target.value = "";
});
$("upload").addEventListener("submit", (event) => event.preventDefault());
$("more").addEventListener("click", () => {
  limit = Math.min(limit + 50, 200);
  ask();
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
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
setInterval(() => {
  for (const row of rows.values()) {
    if (row.job && row.job.retry_in_ms) put(row.element.querySelector(".message"), messageOf(row.job, row.seenAt));
  }
}, 1000);
ask();
