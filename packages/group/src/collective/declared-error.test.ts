import { error, service } from "cinnabar/standard";
import { afterEach, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import { envelopeSchema, replySchema } from "./envelope.ts";
import { closeAll, groupOf, type TestMember } from "./group-of.test-support.ts";
import { implementCollectives } from "./handlers.ts";
import { collective } from "./method.ts";
import { CollectiveError } from "./result.ts";

const Store = service("store.v1", {
  drop: collective({
    input: z.object({ pool: z.string() }),
    errors: {
      NotFound: error({ data: z.object({ pool: z.string() }), code: "not_found", message: "no such pool" }),
      Busy: z.object({ users: z.number() }),
    },
  }),
});

let members: TestMember[] = [];
afterEach(() => closeAll(members));

const options = { timeoutMs: 60_000, onFailure: "partial", tree: { kind: "knomial", ratio: 2 } } as const;

it("a declared error of a handler comes with its data, typed, from wherever in the tree", async () => {
  members = await groupOf(8, (rank) => [
    implementCollectives(Store, {
      drop: {
        before(_, call) {
          if (rank === 2) call.fail("Busy", { users: 3 });
        },
        handle({ pool }, call) {
          if (rank === 7) return call.fail("NotFound", { pool });
        },
      },
    }),
  ]);
  const { drop } = (members[0] as TestMember).collectives.all(Store);
  const { ok, failed } = await drop({ pool: "a" }, options);
  expect(ok).toEqual([0, 1, 4, 5, 6]);
  expect(failed.get(7)).toEqual({
    ...{ code: "not_found", message: "no such pool", retryable: false },
    ...{ executed: "yes", reason: "NotFound", data: { pool: "a" } },
  });
  for (const rank of [2, 3])
    expect(failed.get(rank)).toMatchObject({ reason: "Busy", data: { users: 3 }, executed: "no" });
  const failure = failed.get(7);
  if (failure?.reason === "NotFound") expectTypeOf(failure.data).toEqualTypeOf<{ pool: string }>();
  else expect.fail("it has another reason");
  const error = await drop({ pool: "a" }, { ...options, onFailure: "fail" }).catch(
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(CollectiveError);
  // The lowest rank that failed decides code, reason and data.
  expect(error).toMatchObject({ code: "failed_precondition", reason: "Busy", data: { users: 3 } });
});

it("data that do not fit the contract, and reasons that it does not have, are internal errors", async () => {
  members = await groupOf(3, (rank) => [
    implementCollectives(Store, {
      drop(_, call) {
        const fail = call.fail as (reason: string, data: unknown) => never;
        if (rank === 1) fail("Busy", { users: "three" });
        if (rank === 2) fail("Gone", {});
      },
    }),
  ]);
  const { drop } = (members[0] as TestMember).collectives.all(Store);
  const { failed } = await drop({ pool: "a" }, options);
  expect(failed.get(1)).toMatchObject({ code: "internal", executed: "yes" });
  expect(failed.get(1)?.message).toContain("the data of Busy do not fit the contract: data.users:");
  expect(failed.get(2)?.message).toBe(
    "the contract does not declare the error Gone, with which the handler failed",
  );
  for (const failure of failed.values()) expect(failure.reason).toBeUndefined();
});

it("a reason that a member's reply claims is dropped where the contract does not have it so", async () => {
  // What a member of another version would send.
  const Other = service("store.v1", {
    drop: {
      ...Store.methods.drop,
      input: envelopeSchema,
      output: replySchema,
      collective: {
        ...Store.methods.drop.collective,
        errors: { Busy: error({ data: z.any() }), Gone: error({ data: z.any() }) },
      },
    } as never,
  });
  members = await groupOf(3, (rank) => [
    implementCollectives(rank === 0 ? Store : (Other as typeof Store), {
      drop(_, call) {
        const fail = call.fail as (reason: string, data: unknown) => never;
        if (rank === 1) fail("Busy", { users: "three" });
        if (rank === 2) fail("Gone", {});
      },
    }),
  ]);
  const { drop } = (members[0] as TestMember).collectives.all(Store);
  const { failed } = await drop({ pool: "a" }, options);
  expect([...failed.keys()]).toEqual([1, 2]);
  for (const failure of failed.values())
    expect(failure).toEqual({
      ...{ code: "failed_precondition", message: expect.any(String), retryable: false, executed: "yes" },
    });
});

it("declared errors are checked as those of unary methods", () => {
  expect(() => collective({ errors: { "not a name": z.string() } })).toThrow("errors");
  expect(() => collective({ errors: 5 as never })).toThrow("errors must be an object of schemas");
});
