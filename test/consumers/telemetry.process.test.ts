import { afterAll, describe, expect, it } from "vitest";
import { Project, tool } from "./support/project.ts";

const project = new Project("telemetry");
project.copy("telemetry.mjs");
afterAll(() => project.remove());

// The tests of packages/otel have version 2, which is the one for Node 20.
describe.each(["22", "24", "26"])("version 3 of OpenTelemetry's SDK under Node %s", (version) => {
  it("gets spans and metrics", () => {
    const { stdout, stderr } = project.node(["telemetry.mjs"], { node: tool(`node-${version}`, "bin/node") });
    const labels = 'rpc_system_name="cinnabar",rpc_method="work.v1/run"';
    expect(stdout, stderr).toBe(
      [
        `rpc_server_call_duration_count{${labels},rpc_status_code="OK"} 1`,
        `rpc_server_call_duration_count{${labels},rpc_status_code="UNAVAILABLE",error_type="UNAVAILABLE"} 1`,
        "cinnabar_sessions 1",
        "1 trace",
        "work.v1/run OK 2",
        "work.v1/run UNAVAILABLE ",
        "work.v1/run OK ",
        "",
      ].join("\n"),
    );
  });
});
