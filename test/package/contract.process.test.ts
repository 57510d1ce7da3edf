import { fileURLToPath } from "node:url";
import { createContext, runInContext } from "node:vm";
import { rolldown } from "rolldown";
import { describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** The bundle of a program for browsers, and every module that it consists of or leaves outside. */
async function bundleForBrowser(program: string): Promise<{ code: string; modules: string[] }> {
  const build = await rolldown({
    input: "program",
    cwd: root,
    platform: "browser",
    // That of a package names declarations.
    tsconfig: false,
    resolve: { conditionNames: ["cinnabar:source", "import", "default"] },
    plugins: [
      {
        name: "program",
        resolveId: (id) => (id === "program" ? `${root}program.js` : undefined),
        load: (id) => (id === `${root}program.js` ? program : undefined),
      },
    ],
    onLog(level, log) {
      if (level === "warn") throw new Error(log.message);
    },
  });
  const { output } = await build.generate({ format: "iife", name: "result", codeSplitting: false });
  await build.close();
  const [chunk] = output;
  return { code: chunk.code, modules: [...chunk.moduleIds, ...chunk.imports, ...chunk.dynamicImports] };
}

/** Runs a bundle where there is ECMAScript and nothing of Node or of browsers. */
const runAlone = (code: string): unknown => runInContext(`${code}\nJSON.stringify(result);`, createContext());

const uses = `
  const Files = service("files.v1", {
    stat: unary({
      input: object({ path: text, page: handle("read"), from: bulk("read"), head: bytes({ maxBytes: 2 }) }),
      errors: { NotFound: text },
    }),
    list: serverStream({ output: text }),
    put: clientStream({ items: bytes(), input: object({ content: bulkStream("read") }) }),
    chat: duplexStream({ items: text, output: text }),
    note: oneWay({ input: text }),
  });
  const error = new RpcError({
    ...{ code: "not_found", message: "no", origin: "remote" },
    ...{ reason: "NotFound", data: "a", method: "files.v1/stat" },
  });
  export const service_ = Files.name;
  export const methods = Object.keys(Files.methods);
  export const declared = isError(error, Files, "stat", "NotFound");
  export const tenant = metadataKey("x-tenant", text).read("acme");
  export const issues = Files.methods.stat.input["~standard"].validate({ path: "a", head: new Uint8Array(3) }).issues
    .map(({ message }) => message);
`;

const names =
  "bulk, bytes, clientStream, duplexStream, handle, isError, metadataKey, oneWay, RpcError, serverStream, service, unary";
const expected = {
  service_: "files.v1",
  methods: ["stat", "list", "put", "chat", "note"],
  declared: true,
  tenant: "acme",
  issues: ["expected a handle of a region", "expected a region", "has 3 bytes; the limit is 2"],
};

describe("contracts in a browser", () => {
  it("are made by `cinnabar/contract` with zod, without a module or a global of Node", async () => {
    const { code, modules } = await bundleForBrowser(`
      import { ${names} } from "cinnabar/contract";
      import { bulkStream } from "cinnabar-bulk/contract";
      import { z } from "zod";
      const object = z.object, text = z.string();
      ${uses}`);
    expect(modules.filter((id) => id.startsWith("node:"))).toEqual([]);
    expect(modules.filter((id) => id.includes("/zod/")).length).toBeGreaterThan(0);
    expect(JSON.parse(runAlone(code) as string)).toEqual(expected);
  });

  it("are made by `cinnabar/contract/standard` without any other package", async () => {
    const { code, modules } = await bundleForBrowser(`
      import { ${names}, fields as object } from "cinnabar/contract/standard";
      import { bulkStream } from "cinnabar-bulk/contract/standard";
      const validate = (value) => typeof value === "string" ? { value } : { issues: [{ message: "no text" }] };
      const text = { "~standard": { version: 1, vendor: "own", validate } };
      ${uses}`);
    const others = modules.filter(
      (id) =>
        !id.startsWith(`${root}src/`) &&
        !id.startsWith(`${root}packages/bulk/src/`) &&
        id !== `${root}program.js`,
    );
    expect(others).toEqual([]);
    expect(JSON.parse(runAlone(code) as string)).toEqual(expected);
    // A browser loads it. 64 KiB are twice what it takes, with its comments.
    expect(Buffer.byteLength(code)).toBeLessThan(64 * 1024);
  });
});
