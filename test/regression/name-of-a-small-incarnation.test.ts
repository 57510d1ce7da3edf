import { expect, it } from "vitest";
import { frameKind } from "../../src/wire/frame.ts";
import { Attacker } from "../hostile/support/attacker.ts";
import { methodNumber, Victim } from "../hostile/support/victim.ts";

// The names travel in error messages: the model test found schedules whose messages differed in size from run to run,
// once in a hundred.
it("the name of a peer is as long for a small incarnation as for any other", async () => {
  const victim = await Victim.open();
  using attacker = await Attacker.at(victim.url);
  await attacker.connect({ inc: 0x1fn });
  const method = methodNumber("wait");
  await attacker.sendFrames({ kind: frameKind.request, method, callId: 1 << 20, word: 5000, body: {} });
  const served = () => victim.engine.calls().filter(({ method }) => method === "target.v1/wait");
  await attacker.until(() => served().length === 1, "call at the victim");
  const scheme = new URL(victim.url).protocol.slice(0, -1);
  expect(served().map(({ peer }) => peer)).toEqual([`peer 000000000000001f over ${scheme}`]);
});
