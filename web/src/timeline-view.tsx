import type { AttemptView, EventView, JobView } from "holdfast-client";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { clockTime, lengthOf } from "./time.ts";
import { SHORT, type Segment, ticks, timelineOf } from "./timeline.ts";

const LABEL = 84;
const ROW = 24;
const AXIS = 22;
/** Rows beyond this many are summed up: the newest attempts say most. */
const ROWS = 14;

interface Props {
  job: JobView;
  events: EventView[];
  attempts: AttemptView[];
  now: number;
}

/** The life of a job, drawn to scale: what it waited for, each attempt, and what comes next. */
export function TimelineView({ job, events, attempts, now }: Props): ReactNode {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(240, Math.round(entry!.contentRect.width))));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const drawn = timelineOf(job, events, attempts, now);
  const rows = drawn.rows.length > ROWS ? [drawn.rows[0]!, ...drawn.rows.slice(-(ROWS - 1))] : drawn.rows;
  const space = width - LABEL - 8;
  const scale = space / Math.max(1, drawn.to - drawn.from);
  const place = (at: number) => LABEL + (at - drawn.from) * scale;
  const height = AXIS + rows.length * ROW + 8;
  const axis = ticks(drawn.from, drawn.to, Math.max(2, Math.floor(space / 110)));
  const said = rows.flatMap((row) => row.segments.map((segment) => describe(row.label, segment)));
  return (
    <section aria-labelledby="timeline">
      <h2 id="timeline">Timeline</h2>
      <div ref={box} className="timeline">
        <svg width={width} height={height} role="img" aria-label={`Timeline: ${said.join("; ") || "nothing has happened yet"}`}>
          {axis.map((at) => (
            <g key={at}>
              <line x1={place(at)} x2={place(at)} y1={AXIS - 4} y2={height} className="line-tick" />
              <text x={Math.min(place(at), width - 48)} y={12} className="text-tick">
                {drawn.to - drawn.from < SHORT ? `+${lengthOf(at - drawn.from)}` : clockTime(at, now).slice(-8)}
              </text>
            </g>
          ))}
          {rows.map((row, index) => (
            <g key={index}>
              <text x={0} y={AXIS + index * ROW + 16} className="text-row">
                {row.label}
              </text>
              {row.segments.map((segment, number) => (
                <rect key={number} x={place(segment.from)} y={AXIS + index * ROW + 5} width={Math.max(2, (segment.to - segment.from) * scale)} height={ROW - 10} rx={3} className={`bar bar-${segment.kind}`}>
                  <title>{describe(row.label, segment)}</title>
                </rect>
              ))}
            </g>
          ))}
          {drawn.to > now && now > drawn.from && <line x1={place(now)} x2={place(now)} y1={AXIS - 4} y2={height} className="line-now" />}
          {drawn.marks.map((mark) => (
            <g key={mark.label}>
              <line x1={place(mark.at)} x2={place(mark.at)} y1={AXIS - 4} y2={height} className="line-mark" />
              <text x={Math.min(place(mark.at), width - 4) - 4} y={height - 2} textAnchor="end" className="text-mark">
                {mark.label}
              </text>
            </g>
          ))}
        </svg>
      </div>
      {drawn.rows.length > rows.length && <p className="quiet">The newest {ROWS - 1} of {drawn.rows.length - 1} attempts are drawn.</p>}
    </section>
  );
}

function describe(label: string, segment: Segment): string {
  return `${label} ${segment.text}, ${lengthOf(segment.to - segment.from)}`;
}
