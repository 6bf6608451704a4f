import type { ReactNode } from "react";
import type { Change } from "./diff.ts";

const ROWS = 50;
const LONG = 300;

/** Shows how arguments change, one row a value. */
export function Changes({ changes, caption }: { changes: Change[]; caption: ReactNode }): ReactNode {
  return (
    <table className="counts">
      <caption>{caption}</caption>
      <tbody>
        {changes.slice(0, ROWS).map((change) => (
          <tr key={change.path}>
            <th scope="row" className="mono">
              {change.path}
            </th>
            <td>{change.before === undefined ? <span className="quiet">not there</span> : <del>{change.before.slice(0, LONG)}</del>}</td>
            <td>{change.after === undefined ? <span className="quiet">removed</span> : <ins>{change.after.slice(0, LONG)}</ins>}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
