import { expect, it } from "vitest";
import { fastestFirst } from "./preference.ts";

it("URLs of one engine are tried from the fastest fabric to the slowest, those of one scheme in their order", () => {
  const urls = [
    "net://b:1",
    "net://a:1",
    "psm3://c:1",
    "net+unix:///s",
    "tcp://a:1",
    "verbs://a:1",
    "shm://s",
    "mem://m",
  ];
  expect(fastestFirst(urls)).toEqual([
    "mem://m",
    "shm://s",
    "verbs://a:1",
    "tcp://a:1",
    "net+unix:///s",
    "net://b:1",
    "net://a:1",
    "psm3://c:1",
  ]);
});
