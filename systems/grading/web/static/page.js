// The page of grading: submit writing or speaking, see how long it may take, and the grade, also one that came too late.
import { $, Rows, announce, ask, element, follow, lineOf, notice, now, plural, setText, signIn, sizeOf, span, takeFiles, timeOf } from "/common.js";

const PAGE_OF_ROWS = 25, MOST_ROWS = 200, SOON_SEC = 120;
const STATES = { queued: "Waiting", processing: "Being graded", complete: "Graded", failed: "Failed" };
const STATE_OF = { PENDING: "queued", PROCESSING: "processing", COMPLETED: "complete", FAILED: "failed" };
const EVENTS = { queued: "submitted", released: "given back, to be tried again", reclaimed: "taken back from a worker", manual_retry: "sent again by an operator",
  redriven: "sent again by an operator", processing: "a grader began", complete: "graded", failed: "failed", timed_out: "the deadline passed", cancelled: "cancelled",
  late_result: "a result came late", stale_write: "an outdated result was refused" };

const session = await signIn("Use the key that you were given, or one of holdfast keys create.");
let limit = PAGE_OF_ROWS, recording = null;

// -- rows -----------------------------------------------------------------------------------------------------------
const isOpen = (one) => one.status === "PENDING" || one.status === "PROCESSING";
const nameOf = (one) => one.excerpt || (one.skill === "speaking" ? "Recording" : "Text");
const secondsLeft = (one) => (Date.parse(one.deadlineAt) - now()) / 1000;

function clock(seconds) {
  const left = Math.max(0, Math.floor(seconds)), pad = (number) => String(number).padStart(2, "0");
  return left >= 3600 ? `${Math.floor(left / 3600)}:${pad(Math.floor(left / 60) % 60)}:${pad(left % 60)}` : `${Math.floor(left / 60)}:${pad(left % 60)}`;
}

function deadlineOf(one) {
  if (!isOpen(one) || !one.deadlineAt) return "";
  return secondsLeft(one) > 0 ? `${clock(secondsLeft(one))} left` : "deadline passed";
}

const rows = new Rows($("rows"), $("row"), { prepare, draw });

function prepare(row, item) {
  row.querySelector(".retry").addEventListener("click", () => sendAgain(item()));
  row.querySelector(".trail").addEventListener("toggle", () => showTrail(row, item()));
}

function draw(row, one, before) {
  const find = (name) => row.querySelector(name), name = nameOf(one), state = STATE_OF[one.status] || "queued";
  row.dataset.state = state;
  setText(find(".name"), name);
  find(".name").title = name;
  setText(find(".facts"), [one.skill, one.audioBytes && sizeOf(one.audioBytes), timeOf(one.createdAt)].filter(Boolean).join(" · "));
  setText(find(".state"), STATES[state]);
  setText(find(".attempt"), deadlineOf(one));
  find(".attempt").classList.toggle("soon", isOpen(one) && secondsLeft(one) < SOON_SEC);
  setText(find(".message"), one.message || "");
  const mark = `${one.finishedAt} ${one.lateResults.length}`;
  if (row.dataset.drawn !== mark) {
    row.dataset.drawn = mark;
    drawGrades(find, one);
  }
  find(".retry").hidden = !(session.can_retry && one.status === "FAILED");
  find(".retry").setAttribute("aria-label", `Send again: ${name}`);
  if (one.finishedAt && one.finishedAt !== before.finishedAt) {
    announce(one.result ? `${name}: graded ${one.result.overall}` : `${name}: ${STATES[state]}. ${one.message || ""}`);
  }
  if (one.status !== before.status) showTrail(row, one);
}

function drawGrades(find, one) {
  find(".grade").hidden = !one.result;
  find(".grade").replaceChildren(...(one.result ? gradeOf(one.result) : []));
  const late = one.lateResults.at(-1);
  find(".late").hidden = !late;
  if (!late) return;
  setText(find(".late-line"), `A result came too late, ${timeOf(late.receivedAt)}. It does not count.`);
  find(".late .grade").replaceChildren(...(late.result ? gradeOf(late.result) : []));
}

function gradeOf(grade) {
  const bands = Object.entries(grade.bands).map(([name, band]) =>
    element("div", {}, element("dt", { textContent: name.replaceAll("_", " ") }), element("dd", { textContent: band.toFixed(1) })));
  const shown = [element("p", { className: "overall" }, element("b", { textContent: grade.overall.toFixed(1) }), element("span", { className: "quiet", textContent: "of 9" })),
    element("dl", { className: "bands" }, ...bands), element("p", { className: "feedback", textContent: grade.feedback })];
  if (grade.transcript) shown.push(element("details", {}, element("summary", { className: "quiet", textContent: "What was heard" }), element("p", { textContent: grade.transcript })));
  return shown;
}

// Shows the events of a submission, and those that come while it is open.
function showTrail(row, one) {
  const trail = row.querySelector(".trail"), list = trail.querySelector("ol");
  row.stream?.close();
  if (!trail.open) return;
  list.replaceChildren();
  row.stream = new EventSource(`/submissions/${one.submissionId}/events`);
  for (const kind of Object.keys(EVENTS)) {
    row.stream.addEventListener(kind, (event) => {
      const { at, failureReason, why } = JSON.parse(event.data);
      list.append(element("li", { textContent: [timeOf(at), EVENTS[kind], failureReason, why].filter(Boolean).join(" · ") }));
    });
  }
  row.stream.addEventListener("error", () => row.stream.close()); // it ends with the submission
}

// -- actions --------------------------------------------------------------------------------------------------------
const skill = () => document.querySelector("[name=skill]:checked").value;

async function submit() {
  setText($("refused"), "");
  if (skill() === "speaking" && !recording) return setText($("refused"), "Choose a recording first.");
  if (skill() === "speaking" && recording.size > session.largest_audio) return setText($("refused"), `A recording has at most ${sizeOf(session.largest_audio)}.`);
  $("send").disabled = true;
  try {
    const body = skill() === "writing" ? { skill: "writing", text: $("text").value } : form();
    const made = await ask("POST", "/submissions", body);
    $("rows").prepend(rows.put(made.submissionId, { ...made, excerpt: body.text ? body.text.slice(0, 200) : null }));
    $("empty").hidden = true;
    $("text").value = "";
    choose(null);
    count();
  } catch (error) {
    setText($("refused"), lineOf(error));
  }
  $("send").disabled = false;
  reload();
}

function form() {
  const made = new FormData();
  made.append("skill", "speaking");
  made.append("audio", recording, "recording.wav");
  return made;
}

async function sendAgain(one) {
  const button = rows.known.get(one.submissionId).element.querySelector(".retry");
  button.disabled = true;
  try {
    await ask("POST", `/submissions/${one.submissionId}/retry`);
    if (rows.known.get(one.submissionId)?.item.finishedAt === one.finishedAt) announce(`${nameOf(one)}: sent again`); // unless it has ended since
  } catch (error) {
    notice(`${nameOf(one)}: ${lineOf(error)}`, true);
  }
  button.disabled = false;
  reload();
}

async function load() {
  const found = await ask("GET", `/submissions?limit=${limit}`);
  rows.show(found.submissions, (one) => one.submissionId);
  $("empty").hidden = found.submissions.length > 0;
  $("more").hidden = !found.next || limit >= MOST_ROWS;
  const open = found.submissions.filter(isOpen).length;
  setText($("count"), open ? `${open} in progress` : "");
}

// -- the page -------------------------------------------------------------------------------------------------------
function choose(file) {
  recording = file;
  setText($("chosen"), file ? `${file.name}, ${sizeOf(file.size)}` : "Drop a recording here");
}

function count() {
  const words = $("text").value.trim().split(/\s+/).filter(Boolean).length;
  setText($("words"), plural(words, "word"));
}

function showSkill() {
  $("writing").hidden = skill() !== "writing";
  $("speaking").hidden = skill() !== "speaking";
  setText($("sla"), `graded within ${span(session.sla_sec[skill()])}`);
  setText($("refused"), "");
}

async function sample(path) {
  const answer = await fetch(path).catch(() => null);
  if (answer?.ok) return answer.blob();
  notice("The sample cannot be loaded. Try again in a moment.", true);
  return null;
}

$("submit").hidden = !session.can_submit;
$("text").maxLength = session.longest_text;
setText($("limits"), `WAV up to ${sizeOf(session.largest_audio)}`);
document.querySelectorAll("[name=skill]").forEach((input) => input.addEventListener("change", showSkill));
$("text").addEventListener("input", count);
takeFiles($("audio"), ([file]) => {
  document.querySelector("[value=speaking]").checked = true;
  showSkill();
  if (file) choose(file);
});
$("essay").addEventListener("click", async () => {
  const found = await sample("/samples/essay.txt");
  if (found) $("text").value = await found.text();
  count();
});
$("speech").addEventListener("click", async () => {
  const found = await sample("/samples/speech.wav");
  if (found) choose(new File([found], "sample.wav", { type: "audio/wav" }));
});
$("submit").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
$("more").addEventListener("click", () => { limit = Math.min(limit + PAGE_OF_ROWS, MOST_ROWS); reload(); });
showSkill();
const reload = follow(load);
setInterval(() => rows.redraw(), 1000);
