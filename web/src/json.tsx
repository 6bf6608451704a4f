import { type ReactNode, useState } from "react";
import { HIDDEN } from "./diff.ts";
import { CopyButton } from "./parts.tsx";

const MEMBERS = 100;
const LETTERS = 2000;
/** Nested deeper than this, a value is closed at first. */
const OPEN = 3;

/** Shows a JSON value as a tree. Text is text, whatever it contains; long ones are cut until someone asks. */
export function Json({ value, label }: { value: unknown; label: string }): ReactNode {
  const [isRaw, setRaw] = useState(false);
  const text = JSON.stringify(value, null, 2) ?? "null";
  return (
    <div className="json">
      <div className="json-head">
        <button type="button" aria-pressed={isRaw} onClick={() => setRaw(!isRaw)}>
          Raw
        </button>
        <CopyButton text={text} label={`Copy ${label}`} />
      </div>
      {isRaw ? <Long text={text} /> : <Value value={value} depth={0} />}
    </div>
  );
}

function Value({ value, depth }: { value: unknown; depth: number }): ReactNode {
  if (typeof value === "string") return value === HIDDEN ? <span className="json-hidden" title="The server hides secrets">hidden</span> : <span className="json-text">“<Long text={value} inline />”</span>;
  if (typeof value !== "object" || value === null) return <span className="json-word">{String(value)}</span>;
  const members: Array<[string, unknown]> = Array.isArray(value) ? value.map((inner, index) => [String(index), inner]) : Object.entries(value);
  if (members.length === 0) return <span className="quiet">{Array.isArray(value) ? "[]" : "{}"}</span>;
  return <Members members={members} depth={depth} isList={Array.isArray(value)} />;
}

function Members({ members, depth, isList }: { members: Array<[string, unknown]>; depth: number; isList: boolean }): ReactNode {
  const [shown, setShown] = useState(MEMBERS);
  const [isOpen, setOpen] = useState(depth < OPEN && members.length <= MEMBERS * 10);
  return (
    <details className="json-members" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {members.length} {isList ? (members.length === 1 ? "item" : "items") : members.length === 1 ? "field" : "fields"}
      </summary>
      {isOpen && (
        <dl>
          {members.slice(0, shown).map(([name, inner]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>
                <Value value={inner} depth={depth + 1} />
              </dd>
            </div>
          ))}
        </dl>
      )}
      {isOpen && members.length > shown && (
        <button type="button" onClick={() => setShown(shown + MEMBERS * 5)}>
          Show more of {members.length.toLocaleString("en")}
        </button>
      )}
    </details>
  );
}

/** A text that is cut until someone asks for all of it. */
export function Long({ text, inline = false }: { text: string; inline?: boolean }): ReactNode {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? text : text.slice(0, LETTERS);
  const more = text.length > shown.length && (
    <button type="button" onClick={() => setWhole(true)}>
      Show all {text.length.toLocaleString("en")} characters
    </button>
  );
  return inline ? (
    <>
      <bdi className="letters">{shown}</bdi>
      {more}
    </>
  ) : (
    <>
      <pre className="letters" tabIndex={0}>
        {shown}
      </pre>
      {more}
    </>
  );
}
