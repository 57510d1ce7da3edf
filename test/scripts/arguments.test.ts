import { describe, expect, it } from "vitest";
import { readArguments, UsageError } from "../../scripts/test/arguments.mjs";
import { stages } from "../../scripts/test/stages.mjs";

const known = ["--changed", "--only", "--list", "--resume", "--turn", "--minutes"];
const read = (...args: string[]) => readArguments(args, stages, known);
const chosen = (...args: string[]) => read(...args).stages.map(({ name }) => name);

describe("the arguments of the test commands", () => {
  it("choose all stages, some of them, or a group", () => {
    expect(chosen()).toHaveLength(stages.length);
    expect(chosen("--only", "types-7,biome")).toEqual(["biome", "types-7"]);
    expect(chosen("--only=types")).toEqual(["types-7", "types-6"]);
    expect(chosen("--only", "sanitizers-bulk", "src/wire")).toEqual(["sanitizers-bulk"]);
  });

  it("take a revision, a turn and paths", () => {
    expect(read("--changed").changed).toBe("");
    expect(read("--changed=main~3", "src/wire")).toMatchObject({ changed: "main~3", paths: ["src/wire"] });
    expect(read("--turn", "0123456789abcdef", "--minutes=25")).toMatchObject({ minutes: 25 });
    expect(read().changed).toBeUndefined();
  });

  it.each([
    [["--only", "nothing"], "No such stage: nothing"],
    [["--only"], "--only takes a value"],
    [["--watch"], "Unknown option --watch"],
    [["--turn", "main"], "--turn takes a commit's hash"],
    [["--minutes", "none"], "--minutes takes a number above zero"],
  ])("are refused with a sentence: %j", (args, sentence) => {
    expect(() => read(...args)).toThrow(new UsageError(sentence));
  });
});
