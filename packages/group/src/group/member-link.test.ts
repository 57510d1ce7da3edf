import { expect, it } from "vitest";
import { urlsFrom } from "./member-link.ts";

const urls = ["tcp://10.0.0.1:1", "shm://a", "verbs://10.0.0.1:1"];

it("on one host shared memory comes first, and another host has none", () => {
  const [local, tcp, verbs] = ["shm://a", "tcp://10.0.0.1:1", "verbs://10.0.0.1:1"];
  expect(urlsFrom({ urls, host: "here" }, "here")).toEqual([local, tcp, verbs]);
  expect(urlsFrom({ urls, host: "there" }, "here")).toEqual([tcp, verbs]);
  expect(urlsFrom({ urls, host: undefined }, "here")).toEqual(urls);
  expect(urlsFrom({ urls, host: "there" }, undefined)).toEqual(urls);
  // No other URL is left to try, and the error says what is missing.
  expect(urlsFrom({ urls: ["shm://a"], host: "there" }, "here")).toEqual(["shm://a"]);
});
