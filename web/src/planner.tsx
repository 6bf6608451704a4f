import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { OperationPreview, OperationRequest, OperationView, PreviewedJobView } from "holdfast-client";
import { type ReactNode, useEffect, useId, useState } from "react";
import { client } from "./api.ts";
import { Changes } from "./changes.tsx";
import { BLANK, CAREFUL, type DeadFilter, type Plan, type Problems, describe, readPlan, skippedWords, toApi } from "./dead.ts";
import { changesOf } from "./diff.ts";
import { count } from "./health.ts";
import { OperationProgress } from "./operations.tsx";
import { Failure, Link, Sheet, Skeleton } from "./parts.tsx";
import { lengthOf } from "./time.ts";

/** How long the form stands still before the preview is asked for again. */
const PAUSE = 400;

interface PlannerProps {
  act: "redrive" | "discard";
  filter: DeadFilter;
  /** The moment that the age in the filter counts from. */
  at: number;
  onClose: () => void;
}

/** Plans to redrive or discard all that match: preview, options, start. The preview is always of what the button starts. */
export function Planner({ act, filter, at, onClose }: PlannerProps): ReactNode {
  const queries = useQueryClient();
  const [plan, setPlan] = useState<Plan>(act === "redrive" ? CAREFUL : BLANK);
  const [begun, setBegun] = useState<OperationView>();
  const { options, problems } = readPlan(plan, filter.task !== undefined);
  const isSound = Object.keys(problems).length === 0;
  const body: OperationRequest = { action: act, filter: toApi(filter, at), ...options };
  const { reason: _, ...unreasoned } = body;
  const wanted = JSON.stringify(unreasoned);
  const settled = useSettled(wanted);
  const shown = useQuery({
    queryKey: ["plan", settled],
    queryFn: async () => (await client.beginOperation({ ...(JSON.parse(settled) as OperationRequest), reason: "preview", dry_run: true })) as OperationPreview,
    enabled: isSound,
    staleTime: 0,
    gcTime: 0,
    placeholderData: (before) => before,
  });
  const begin = useMutation({
    mutationFn: async () => (await client.beginOperation(body)) as OperationView,
    onSuccess: (operation) => {
      setBegun(operation);
      void queries.invalidateQueries({ queryKey: ["dead"] });
    },
  });
  const preview = shown.data;
  const doable = preview ? preview.matched - Object.values(preview.skipped).reduce((sum, one) => sum + one, 0) : 0;
  const isCurrent = isSound && wanted === settled && !shown.isFetching && !shown.error;
  const mayStart = isCurrent && doable > 0 && (act === "redrive" || options.reason !== undefined) && !begin.isPending;
  const word = act === "redrive" ? "Redrive" : "Discard";
  return (
    <Sheet title={`${word} ${describe(filter)}`} onClose={onClose}>
      {begun ? (
        <>
          <OperationProgress operation={begun} isOpen />
          <p className="quiet">You may close this. Workers carry the plan out, and this page shows it under Plans.</p>
          <footer className="sheet-foot">
            <button type="button" className="primary" data-first onClick={onClose}>
              Close
            </button>
          </footer>
        </>
      ) : (
        <form
          className="plan"
          onSubmit={(event) => {
            event.preventDefault();
            if (mayStart) begin.mutate();
          }}
        >
          {preview ? <Shown act={act} preview={preview} doable={doable} hasPatch={options.patch !== undefined} /> : !shown.error && <Skeleton rows={3} />}
          <Failure asked={[{ error: shown.error, dataUpdatedAt: 0 }, { error: begin.error, dataUpdatedAt: 0 }]} />
          <Fields act={act} plan={plan} problems={problems} onChange={(field, text) => setPlan({ ...plan, [field]: text })} />
          <footer className="sheet-foot">
            <button type="button" onClick={onClose}>
              Back
            </button>
            <button type="submit" className="primary" disabled={!mayStart}>
              {word} {count(doable, "job", "jobs", preview?.is_capped)}
            </button>
          </footer>
        </form>
      )}
    </Sheet>
  );
}

/** Returns the text as it was when it last stood still. */
function useSettled(text: string): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), PAUSE);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

function Shown({ act, preview, doable, hasPatch }: { act: PlannerProps["act"]; preview: OperationPreview; doable: number; hasPatch: boolean }): ReactNode {
  const { matched, is_capped: isCapped, waiting, lasts_seconds: lasts, drains_in_seconds: drains } = preview;
  const skipped = skippedWords(preview.skipped);
  const facts: Array<[string, string | undefined]> = [
    ["Match", `${matched.toLocaleString("en")}${isCapped ? "+" : ""}`],
    ["Skipped", skipped.length > 0 ? skipped.join(", ") : "none"],
    ["Goes to", act === "redrive" ? preview.queues.join(", ") : undefined],
    ["Wait there now", act === "redrive" && waiting !== null ? waiting.toLocaleString("en") : undefined],
    ["Takes", lasts === null ? undefined : `${lengthOf(lasts * 1000)}, without the wait for a canary`],
    ["Drains in", drains === null ? undefined : lengthOf(drains * 1000)],
  ];
  const end = act === "redrive" ? "redriven. Each gets its attempts anew." : "discarded. Their jobs stay failed, and this cannot be undone.";
  return (
    <div className="preview" aria-live="polite">
      <p className="lead">{doable === 0 ? "None of these can be changed by this." : `${count(doable, "job", "jobs", isCapped)} will be ${end}`}</p>
      <dl className="facts">
        {facts
          .filter(([, value]) => value)
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
      {preview.checked > 0 && preview.checked < matched && <p className="quiet">The arguments of the first {preview.checked} were checked; the others are checked when it is their turn.</p>}
      {preview.sample.length > 0 && (
        <>
          <h3>For example</h3>
          <ul className="sample">
            {preview.sample.map((job) => (
              <li key={job.id}>
                <Sampled job={job} hasPatch={hasPatch} />
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}

function Sampled({ job, hasPatch }: { job: PreviewedJobView; hasPatch: boolean }): ReactNode {
  const changes = changesOf(job.before, job.after);
  const about = (
    <>
      <span className="name">{job.task}</span>{" "}
      <Link path={`jobs/${job.id}`} className="mono" title={job.id}>
        {job.id.slice(0, 8)}…{job.id.slice(-4)}
      </Link>{" "}
      {job.error_code && <code>{job.error_code}</code>}
      {job.skipped && <span className="tone-warn"> skipped: {skippedWords({ [job.skipped]: 1 })[0]}</span>}
    </>
  );
  if (!hasPatch) return about;
  return changes.length === 0 ? <>{about} stays as it is</> : <Changes changes={changes} caption={about} />;
}

const FIELDS: Array<{ field: keyof Plan; label: string; placeholder: string; type?: string }> = [
  { field: "canary", label: "Canary: this many go first", placeholder: "none; all follow at once", type: "number" },
  { field: "rampFrom", label: "Ramp from, a minute", placeholder: "no ramp", type: "number" },
  { field: "rate", label: "Up to, a minute", placeholder: "as fast as it goes", type: "number" },
  { field: "stopAbove", label: "Stop above, % of the last 50", placeholder: "20 with a canary or a ramp; else never", type: "number" },
  { field: "queue", label: "Other queue", placeholder: "their own" },
  { field: "patch", label: "Change arguments", placeholder: '{"mapping": "jats", "old": null}' },
];
const REASON = { field: "reason" as const, label: "Reason", placeholder: "recorded with each job", type: "text" };

interface FieldsProps {
  act: PlannerProps["act"];
  plan: Plan;
  problems: Problems;
  onChange: (field: keyof Plan, text: string) => void;
}

function Fields({ act, plan, problems, onChange }: FieldsProps): ReactNode {
  const base = useId();
  return (
    <div className="fields">
      {[...(act === "redrive" ? FIELDS : []), REASON].map(({ field, label, placeholder, type }) => {
        const id = `${base}-${field}`;
        const problem = problems[field];
        const common = { id, placeholder, value: plan[field], "aria-invalid": problem !== undefined, "aria-describedby": problem ? `${id}-said` : undefined };
        return (
          <div key={field} className="field">
            <label htmlFor={id}>{label}</label>
            {field === "patch" ? (
              <textarea {...common} rows={2} spellCheck={false} onChange={(event) => onChange(field, event.target.value)} />
            ) : (
              <input {...common} type={type ?? "text"} step="any" maxLength={500} required={field === "reason" && act === "discard"} onChange={(event) => onChange(field, event.target.value)} />
            )}
            {problem && (
              <p id={`${id}-said`} className="tone-bad">
                {problem}
              </p>
            )}
          </div>
        );
      })}
    </div>
  );
}
