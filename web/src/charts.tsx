import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import { type Chart, highestOf, isEmpty, pathOf, stacksOf } from "./statistics.ts";
import { clockTime } from "./time.ts";

const HEIGHT = 120;
const LABELS = 64;
const AXIS = 18;
const TOP = 8;

interface Props {
  title: string;
  chart: Chart;
  /** Draws the values on each other, as counts are. Others are drawn as lines. */
  stacked?: boolean;
  /** Returns a value with its unit. */
  text: (value: number) => string;
  /** Returns where an axis ends that holds a value. */
  roundUp: (highest: number) => number;
  now: number;
}

/** What was measured in the last hour, by minute: a picture, its legend, and the same figures as a table. */
export function MinuteChart(props: Props): ReactNode {
  const { title, chart, stacked = false } = props;
  const heading = useId();
  const nothing = isEmpty(chart);
  return (
    <section aria-labelledby={heading} className="chart">
      <h2 id={heading}>{title}</h2>
      <ul className="legend">
        {chart.lines.map((line) => (
          <li key={line.label}>
            <svg className={`legend-key key-${line.kind}`} viewBox="0 0 16 10" aria-hidden="true">
              {stacked ? <rect x={3} width={10} height={10} rx={2} /> : <path d="M1 5h14" />}
            </svg>
            {line.label}
          </li>
        ))}
      </ul>
      {nothing ? <p className="chart-box quiet">No statistics yet: nothing was counted in the last hour.</p> : <Drawing {...props} />}
      {!nothing && <Table {...props} />}
    </section>
  );
}

function Drawing({ title, chart, stacked = false, text, roundUp, now }: Props): ReactNode {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(400);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(200, Math.round(entry!.contentRect.width))));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const highest = highestOf(chart.lines, stacked);
  const most = roundUp(highest);
  const space = width - LABELS;
  const step = space / Math.max(1, chart.at.length);
  const stacks = stacked ? stacksOf(chart.lines, most, HEIGHT) : [];
  const quarters = chart.at.flatMap((at, index) => (new Date(at).getMinutes() % 15 === 0 ? [{ at, index }] : []));
  return (
    <div ref={box} className="chart-box">
      <svg width={width} height={TOP + HEIGHT + AXIS} role="img" aria-label={`${title}: at most ${text(highest)}. The table below has every minute.`}>
        {[most, most / 2, 0].map((value) => (
          <g key={value}>
            <line x1={LABELS} x2={width} y1={yOf(value, most)} y2={yOf(value, most)} className="line-tick" />
            <text x={LABELS - 6} y={yOf(value, most) + 4} textAnchor="end" className="text-tick">
              {text(value)}
            </text>
          </g>
        ))}
        {quarters.map(({ at, index }) => (
          <text key={at} x={Math.min(LABELS + index * step, width - 32)} y={TOP + HEIGHT + 14} className="text-tick">
            {clockTime(at, at).slice(0, 5)}
          </text>
        ))}
        <g transform={`translate(${LABELS} ${TOP})`}>
          {stacked
            ? stacks.map((boxes, number) =>
                boxes.map(({ index, y, height }) => <rect key={`${number} ${index}`} x={index * step} y={y} width={Math.max(1, step - 1)} height={height} className={`area-${chart.lines[number]!.kind}`} />),
              )
            : chart.lines.map((line) => <path key={line.label} d={pathOf(line.values, most, space, HEIGHT)} className={`line line-${line.kind}`} />)}
          {chart.at.map((at, index) => (
            <rect key={at} x={index * step} width={step} height={HEIGHT} className="target">
              <title>{`${clockTime(at, now).slice(0, -3)} ${chart.lines.map((line) => `${line.label} ${shown(line.values[index], text)}`).join(", ")}`}</title>
            </rect>
          ))}
        </g>
      </svg>
    </div>
  );
}

function yOf(value: number, most: number): number {
  return TOP + HEIGHT - (value / most) * HEIGHT;
}

function shown(value: number | null | undefined, text: (value: number) => string): string {
  return value === null || value === undefined ? "–" : text(value);
}

function Table({ title, chart, text, now }: Props): ReactNode {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary className="quiet">As a table</summary>
      {isOpen && (
        <div className="table-scroll chart-table" tabIndex={0} role="group" aria-label={`${title}, as a table`}>
          <table>
            <thead>
              <tr>
                <th scope="col">Minute</th>
                {chart.lines.map((line) => (
                  <th key={line.label} scope="col" className="number">
                    {line.label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {chart.at
                .map((at, index) => (
                  <tr key={at}>
                    <th scope="row">{clockTime(at, now).slice(0, -3)}</th>
                    {chart.lines.map((line) => (
                      <td key={line.label} className="number">
                        {shown(line.values[index], text)}
                      </td>
                    ))}
                  </tr>
                ))
                .toReversed()}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}

const SPARK = { width: 72, height: 18 };

/** A trend of a few pixels beside the figure that says it. */
export function Sparkline({ values, label }: { values: Array<number | null>; label: string }): ReactNode {
  const most = Math.max(1, ...values.map((value) => value ?? 0));
  return (
    <svg className="spark" width={SPARK.width} height={SPARK.height} role="img" aria-label={label}>
      <path transform="translate(0 1)" d={pathOf(values, most, SPARK.width, SPARK.height - 2)} />
    </svg>
  );
}
