import { afterAll, expect, it } from "vitest";
import { Project, tool } from "./support/project.ts";

const project = new Project("http");
for (const program of ["http-connect", "http-servers", "http-fetch", "http-openapi"])
  project.copy(`${program}.mjs`);
afterAll(() => project.remove());

// connect-node needs Node 22.
const node = tool("node-24", "bin/node");

it("serves Connect's own clients: unary calls, GET, errors with details, deadlines, aborts, all streams", () => {
  const { stdout, stderr } = project.node(["http-connect.mjs"], { node });
  const calls = [
    "  echo Zoë 1152921504606846976n [ 251, 255 ] [ 'in', '3' ]",
    "  long 5000",
    "  empty true",
    "  get a&b=c [ 'GET' ]",
    '  declared NotFound | declared error Taken | {"reason":"Taken","data":{"by":"Ada","list":[1,null]}}',
    "  missing Unimplemented | there is no such method",
    "  deadline DeadlineExceeded",
    "  abort Canceled",
    "  list item 1, item 2 | 9",
    '  list item 1, item 2 | FailedPrecondition | declared error Tired | {"reason":"Tired","data":{"at":3}}',
  ];
  const noBodies = "Unknown | The fetch API does not support streaming request bodies";
  const lines = [
    ...["web", ...calls, `  gather ${noBodies}`, `  chat ${noBodies}`],
    ...["node over HTTP/1.1", ...calls, "  gather a+b", "  chat Unknown | HTTP 505"],
    ...["node over HTTP/2", ...calls, "  gather a+b", "  chat re: a, re: b"],
    ...["  leave Canceled", "  left cancelled", "closed true", ""],
  ];
  expect(stdout, stderr).toBe(lines.join("\n"));
});

it("stands beside other routes in Fastify, Express and Hono", () => {
  const { stdout, stderr } = project.node(["http-servers.mjs"], { node });
  const lines = ["fastify", "express", "hono"].map((name) => `${name} true cancelled true 404`);
  expect(stdout, stderr).toBe([...lines, "closed", ""].join("\n"));
});

it("describes methods so that Redocly's validator finds no fault", () => {
  const { stdout, stderr } = project.node(["http-openapi.mjs"], { node });
  expect(stderr).toBe("");
  project.write("openapi.json", stdout);
  const args = [tool("@redocly/cli", "bin/cli.js"), "lint", "--extends=spec", "openapi.json"];
  const linted = project.node(args, { node, env: { REDOCLY_TELEMETRY: "off" } });
  expect(linted.status, linted.stdout + linted.stderr).toBe(0);
});

it.each([
  ["Bun", tool("bun", "bin/bun"), []],
  ["Deno", tool("deno", "deno"), ["run", "--allow-all"]],
])("is a server of %s as it is", (_, runtime, options) => {
  const { stdout, stderr } = project.node([...options, "http-fetch.mjs"], { node: runtime });
  expect(stdout, stderr).toBe("hello\ncancelled cancelled\nover\nunavailable\nclosed\n");
});
