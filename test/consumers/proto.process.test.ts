import { afterAll, expect, it } from "vitest";
import { Project, tool } from "./support/project.ts";

const project = new Project("proto");
for (const program of ["http-proto.mjs", "proto-contract.ts", "proto-forms.mjs"]) project.copy(program);
afterAll(() => project.remove());

// The contract is TypeScript.
const node = tool("node-24", "bin/node");
const buf = tool("buf", "bin/buf");
const command = tool("cinnabar", "dist/cli/bin/cinnabar.js");

/** Runs a program to its good end. */
function run(program: string, args: readonly string[]): string {
  const { status, stdout, stderr } = project.node(args, { node: program });
  expect(status, stdout + stderr).toBe(0);
  return stdout;
}

it("writes a file that buf compiles, and by which Connect's clients call: unary, GET, errors, all streams", () => {
  const args = ["proto", "proto-contract.ts", "--out", "club.proto", "--safe", "find"];
  expect(run(node, [command, ...args])).toBe("club.proto.lock.json\nclub.proto\n");
  expect(run(node, [command, ...args, "--check"])).toBe("");
  const plugin = { local: [node, tool("@bufbuild/protoc-gen-es", "bin/protoc-gen-es")] };
  const template = { version: "v2", plugins: [{ ...plugin, out: "generated", opt: "target=js" }] };
  run(buf, ["generate", "club.proto", "--template", JSON.stringify(template)]);
  expect(run(node, ["http-proto.mjs"])).toBe(
    [
      "Zoë, Z, true, true [ 'a', 'b' ] 2",
      "true true member",
      "nobody, -, false, true [] 0 0n 0",
      "PermissionDenied [ { reason: 'Banned', data: { by: 'Ada', days: 3 } } ]",
      "InvalidArgument input.photo: expected a Uint8Array",
      "Ada [] [ 'GET', 'GET' ]",
      "{ '$typeName': 'club.people.V1PingResponse' }",
      "[ 'p0', 'p1', 'Tired' ]",
      "1.5",
      "[ 're: ', 're: b' ]",
      "closed\n",
    ].join("\n"),
  );
});

it("keeps the numbers of a changed contract, so that buf finds no breaking change; it finds one without the lock", () => {
  const contract = (input: string) => `import { service, unary } from "cinnabar/contract";
    import { z } from "zod";
    export const Work = service("work.v1", { go: unary({ input: z.object(${input}) }) });`;
  const rules = JSON.stringify({ version: "v2", breaking: { use: ["WIRE_JSON"] } });
  project.write("first.ts", contract('{ a: z.string(), kind: z.enum(["x", "y"]), n: z.number() }'));
  project.write("second.ts", contract('{ kind: z.enum(["z", "y"]), n: z.number(), b: z.boolean() }'));
  run(node, [command, "proto", "first.ts", "--out", "work.proto"]);
  run(buf, ["build", "work.proto", "-o", "first.binpb"]);
  run(node, [command, "proto", "second.ts", "--out", "work.proto"]);
  const against = ["--against", "first.binpb", "--config", rules];
  run(buf, ["breaking", "work.proto", ...against]);
  // Without the lock the fields are numbered anew.
  run(node, [command, "proto", "second.ts", "--out", "new.proto"]);
  const { status, stdout } = project.node(["breaking", "new.proto", ...against], { node: buf });
  expect(status, stdout).toBe(100);
});

it.each([1, 2, 3])("gives values of contracts by chance the same JSON (beginning with %i)", (seed) => {
  expect(run(node, ["proto-forms.mjs", buf, String(seed)])).toBe("60 contracts, 2400 values\n");
});
