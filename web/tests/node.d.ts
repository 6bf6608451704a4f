/** The one function of Node.js that the tests call. */
declare module "node:child_process" {
  export function execFileSync(program: string, args: string[]): { toString(): string };
}
