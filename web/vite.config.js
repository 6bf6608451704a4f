import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { defineConfig } from "vite";

const client = resolve(import.meta.dirname, "../clients/typescript/client.js");

/** Adds the licences of what is bundled, and a compressed copy of every file. Fails for a package without a licence. */
function packaged() {
  return {
    name: "packaged",
    enforce: "post",
    generateBundle(options, bundle) {
      const folders = new Set();
      for (const file of Object.values(bundle)) {
        for (const id of file.type === "chunk" ? file.moduleIds : []) {
          const found = /^\0?(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id);
          if (found) folders.add(found[1]);
        }
      }
      const texts = [...folders].sort().map(licence);
      this.emitFile({ type: "asset", fileName: "licenses.txt", source: texts.join(`\n${"-".repeat(80)}\n\n`) });
    },
    writeBundle(options, bundle) {
      for (const [name, file] of Object.entries(bundle)) {
        const source = file.type === "chunk" ? file.code : file.source;
        this.fs.writeFile(join(options.dir, `${name}.gz`), gzipSync(source, { level: 9 }));
      }
    },
  };
}

function licence(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name} in ${dirname(folder)} has no licence file, so it cannot be bundled`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
}

if (!existsSync(client)) throw new Error("clients/typescript is missing; build in a whole clone");

export default defineConfig({
  base: "./",
  resolve: { alias: { "holdfast-client": client } },
  build: { modulePreload: false, assetsInlineLimit: 0, target: "es2022" },
  plugins: [packaged()],
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
