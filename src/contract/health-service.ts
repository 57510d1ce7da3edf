import { shaped } from "./json-shape.ts";
import { service } from "./service.ts";
import { serverStream } from "./stream.ts";
import { unary } from "./unary.ts";

const question = shaped<{ readonly service?: string }>({
  type: "object",
  properties: { service: { type: "string", maxLength: 128, description: '"" is the whole engine' } },
});

const statuses = ["serving", "not_serving", "draining"] as const;

const answer = <const Status extends string>(words: readonly Status[]) =>
  shaped<{ readonly status: Status; readonly reason?: string }>({
    type: "object",
    properties: { status: { type: "string", enum: words }, reason: { type: "string" } },
    required: ["status"],
  });

/**
 * The service by which every engine tells its health. It is built in: an engine need not serve it, and answers while it
 * drains and while its admission control is full.
 *
 * `service` is the name of a service, with `#` and the instance where it has one; "" or left out: the whole engine.
 * `not_serving` is what `engine.health.set` has said. An engine is `draining` while it finishes what runs and takes no
 * new calls. `check` fails with `not_found` for a service that the engine neither serves nor has a health of. `watch` gives the
 * health at once and then each change. It says `unknown` where `check` fails, and goes on: the service may come.
 *
 * @example
 * const health = peer.client(Health);
 * const { status, reason } = await health.check({ service: "files.v1" });
 * for await (const { status } of health.watch({})) console.log(status);
 */
export const Health = service("cinnabar.health.v1", {
  check: unary({ input: question, output: answer(statuses), idempotent: true }),
  watch: serverStream({
    input: question,
    output: answer([...statuses, "unknown"]),
    idempotent: true,
    idleTimeoutMs: false,
  }),
});
