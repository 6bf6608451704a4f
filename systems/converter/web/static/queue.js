// The queue page: it uploads files, follows their jobs, and retries, cancels and removes them.
import { $, Rows, announce, ask, follow, lineOf, notice, setText, sizeOf, takeFiles, timeOf, until } from "/common.js";

const MAX_BYTES = 52428800, PAGE_OF_ROWS = 50, MOST_ROWS = 200, AT_A_TIME = 3;
const MARKED_MS = 12000, SURE_MS = 5000;
const STATES = { uploading: "Uploading", queued: "Queued", processing: "Converting", complete: "Complete", failed: "Failed", cancelled: "Cancelled" };
const DONE = { retry: "queued again", cancel: "cancelled" };

const locals = new Map(); // key → the row of a file that has no job yet
const uploaded = new Set(); // uploads whose end is not announced yet: they may end before they first appear
let limit = PAGE_OF_ROWS, marked = "";

// -- rows -----------------------------------------------------------------------------------------------------------
const rows = new Rows($("rows"), $("row"), { prepare, draw });

function prepare(row, item) {
  row.querySelector(".retry").addEventListener("click", () => act(item(), "retry"));
  row.querySelector(".cancel").addEventListener("click", () => act(item(), "cancel"));
  row.querySelector(".remove").addEventListener("click", () => remove(row, item()));
}

function messageOf(job) {
  return job.retry_after ? `${job.message} Next try ${until(job.retry_after)}.`.trim() : job.message;
}

function draw(row, job, before) {
  const find = (name) => row.querySelector(name);
  row.dataset.state = job.state;
  row.classList.toggle("marked", job.id === marked);
  setText(find(".name"), job.name);
  find(".name").title = job.name;
  const priority = job.priority && job.priority !== "normal" ? `${job.priority} priority` : "";
  setText(find(".facts"), [job.mapping, sizeOf(job.size), priority, job.created_at && timeOf(job.created_at)].filter(Boolean).join(" · "));
  setText(find(".state"), STATES[job.state] || job.state);
  setText(find(".attempt"), attemptsOf(job));
  setText(find(".message"), messageOf(job));
  const download = find(".download"), retry = find(".retry");
  download.hidden = !job.download;
  if (job.download) {
    download.href = job.download;
    download.setAttribute("aria-label", `Download the XML of ${job.name}`);
  }
  retry.hidden = job.local || job.refused || (job.state !== "failed" && !job.can_retry);
  retry.disabled = !job.can_retry;
  retry.title = job.can_retry ? "" : "The PDF has been removed; upload it again.";
  retry.setAttribute("aria-label", `Retry ${job.name}${job.can_retry ? "" : " (not possible: the PDF has been removed)"}`);
  find(".cancel").hidden = !job.can_cancel;
  find(".cancel").setAttribute("aria-label", `Cancel ${job.name}`);
  find(".remove").hidden = !job.can_remove;
  find(".remove").setAttribute("aria-label", `${find(".remove").textContent} ${job.name}`);
  find(".progress").hidden = job.state !== "uploading";
  const ended = job.state === "complete" || job.state === "failed";
  if (ended && (uploaded.delete(job.id) || before.state !== job.state)) announce(`${job.name}: ${STATES[job.state]}. ${job.message}`);
}

function attemptsOf(job) {
  const shown = job.attempt > 1 || (job.attempt === 1 && (job.state === "queued" || job.state === "failed"));
  const parts = shown ? [`attempt ${job.attempt} of ${job.max_attempts}`] : [];
  const count = job.manual_retry_count || 0;
  if (count) parts.push(`retried by ${retriedHere.has(job.id) ? "you" : "hand"}${count > 1 ? `, ${count} times` : ""}`);
  return parts.join(" · ");
}

async function load() {
  const found = await ask("GET", `/api/jobs?limit=${limit}`);
  $("banner").hidden = !found.held;
  setText($("banner"), found.banner || "");
  rows.show([...locals.values()].reverse().concat(found.jobs), (job) => job.id);
  $("empty").hidden = rows.known.size > 0;
  $("more").hidden = !found.next || limit >= MOST_ROWS;
  const unfinished = found.jobs.filter((job) => job.can_cancel).length;
  setText($("count"), unfinished ? `${unfinished} in progress` : "");
}

// -- actions --------------------------------------------------------------------------------------------------------
async function act(job, action) {
  const button = rows.known.get(job.id).element.querySelector(`.${action}`);
  button.disabled = true;
  try {
    const answer = await ask("POST", `/api/jobs/${job.id}/${action}`);
    if (answer.id !== job.id) showOther(job.name, answer);
    else announce(`${job.name}: ${DONE[action]}`);
    if (action === "retry") remember(job.id);
  } catch (error) {
    notice(error.status ? `${job.name}: ${lineOf(error)}` : lineOf(error), true);
  }
  button.disabled = false;
  reload();
}

// Asks once more before it deletes: a file cannot be brought back.
async function remove(row, job) {
  const button = row.querySelector(".remove");
  if (!button.classList.contains("sure")) {
    sure(button, true);
    setTimeout(() => sure(button, false), SURE_MS);
    return;
  }
  try {
    if (!job.local) await ask("DELETE", `/api/jobs/${job.id}`);
    locals.delete(job.id);
    announce(`${job.name}: removed`);
  } catch (error) {
    notice(`${job.name}: ${lineOf(error)}`, true);
  }
  reload();
}

function sure(button, is) {
  button.classList.toggle("sure", is);
  setText(button, is ? "Delete for good" : "Remove");
}

// The jobs that were retried in this browser. Operators can retry jobs too.
const retriedHere = new Set(read("retried"));

function read(name) {
  try { return [].concat(JSON.parse(localStorage.getItem(name)) || []); } catch { return []; }
}

function remember(id) {
  retriedHere.add(id);
  try { localStorage.setItem("retried", JSON.stringify([...retriedHere].slice(-200))); } catch { /* kept until the page closes */ }
}

// Shows the other job that a retry returned: that of a later upload of the same file, or a new one.
function showOther(name, job) {
  notice(job.duplicate ? `${name} was uploaded again later; see the marked row.` : `${name} is converted again; see the marked row.`);
  marked = job.id;
  setTimeout(() => { marked = ""; rows.redraw(); }, MARKED_MS);
  const element = rows.put(job.id, job);
  if (!element.isConnected) $("rows").prepend(element);
  element.scrollIntoView({ block: "nearest" });
}

// -- uploading ------------------------------------------------------------------------------------------------------
let localCount = 0, sending = 0, throttled = false;
const waiting = [];

function add(files) {
  for (const file of files) {
    const job = { id: `local-${++localCount}`, local: true, name: file.name, mapping: $("mapping").value, priority: $("priority").value, size: file.size, state: "uploading", message: "" };
    keep(job);
    if (file.size > MAX_BYTES) end(job, "File exceeds 50 MB limit.");
    else waiting.push({ job, file });
  }
  send();
}

// Shows the row of a file that has no job.
function keep(job) {
  const isNew = !locals.has(job.id);
  locals.set(job.id, job);
  const element = rows.put(job.id, job);
  if (isNew) $("rows").prepend(element);
  $("empty").hidden = true;
}

function end(job, message) {
  keep({ ...job, state: "failed", message, can_remove: true });
}

function send() {
  while (!throttled && sending < AT_A_TIME && waiting.length) {
    const item = waiting.shift(), { job, file } = item, form = new FormData(), request = new XMLHttpRequest();
    sending += 1;
    form.append("mapping", job.mapping);
    form.append("priority", job.priority);
    form.append("file", file);
    request.open("POST", "/api/upload");
    request.responseType = "json";
    request.upload.onprogress = (event) => {
      const row = rows.known.get(job.id);
      if (row && event.lengthComputable) row.element.querySelector("progress").value = (100 * event.loaded) / event.total;
    };
    request.onloadend = () => {
      sending -= 1;
      if (request.status === 429) sendLater(Number(request.getResponseHeader("retry-after")) || 5, item);
      else answered(job, request.status, request.response);
      send();
    };
    request.send(form);
  }
}

function answered(job, status, answer) {
  if (answer && (status < 300 || answer.job_id)) { // it has a job, which comes with the next reading
    locals.delete(job.id);
    rows.remove(job.id);
    if (answer.duplicate) notice(`${job.name} was already uploaded.`);
    else if (answer.job_id) announce(`${job.name}: ${answer.detail}`);
    else {
      announce(`${job.name}: uploaded`);
      uploaded.add(answer.id);
      const known = rows.known.get(answer.id);
      if (known) rows.put(answer.id, known.item);
    }
  } else {
    end(job, answer?.detail || "The upload was interrupted. Send the file again.");
  }
  reload();
}

// The server limits the rate of uploads: sends the file again after the pause that it asked for, then the others.
function sendLater(seconds, item) {
  throttled = true;
  waiting.unshift(item);
  keep({ ...item.job, message: "Too many files at a time; this one is sent in a moment." });
  setTimeout(() => { throttled = false; send(); }, seconds * 1000);
}

// -- the page -------------------------------------------------------------------------------------------------------
takeFiles($("file"), add);
$("sample").addEventListener("click", async () => {
  const answer = await fetch("/sample.pdf").catch(() => null);
  if (answer?.ok) add([new File([await answer.blob()], "sample.pdf", { type: "application/pdf" })]);
  else notice("The sample cannot be loaded. Try again in a moment.", true);
});
$("upload").addEventListener("submit", (event) => event.preventDefault());
$("more").addEventListener("click", () => { limit = Math.min(limit + PAGE_OF_ROWS, MOST_ROWS); reload(); });
const reload = follow(load);
setInterval(() => rows.redraw(), 1000);
