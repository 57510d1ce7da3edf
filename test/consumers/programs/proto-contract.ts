// The contract that becomes a file of Protobuf.
import { bytes, clientStream, duplexStream, error, serverStream, service, unary } from "cinnabar/contract";
import { z } from "zod";

const Person = z.object({
  fullName: z.string(),
  born: z.date(),
  badge: z.bigint(),
  role: z.enum(["guest", "member", "owner"]),
  nickname: z.string().optional(),
});

export const Club = service("club.people.v1", {
  greet: unary({
    input: z.object({
      who: Person,
      loud: z.boolean(),
      tags: z.array(z.string()).default([]),
      photo: bytes(),
    }),
    output: z.object({ who: Person, text: z.string(), tags: z.array(z.string()), "photo-bytes": z.int() }),
    errors: {
      Banned: error({ data: z.object({ by: z.string(), days: z.int() }), code: "permission_denied" }),
    },
  }),
  find: unary({
    input: z.object({ name: z.string() }),
    output: z.object({ byName: z.record(z.string(), Person) }),
  }),
  list: serverStream({
    input: z.object({ count: z.int32() }),
    output: Person,
    errors: { Tired: z.object({ at: z.int() }) },
  }),
  total: clientStream({ items: z.object({ points: z.number() }), output: z.object({ points: z.number() }) }),
  chat: duplexStream({ items: z.object({ text: z.string() }), output: z.object({ text: z.string() }) }),
  ping: unary(),
});
