import { describe, expect, it, onTestFinished } from "vitest";
import { CallOperations, CallPromise, type CallSettler } from "./call-operations.ts";

/** An operation of a handler, and what settles it. */
function operation(operations: CallOperations | undefined) {
  let settler!: CallSettler<number>;
  const promise = new CallPromise<number>(operations, (made) => {
    settler = made;
  });
  return { promise, settler };
}

/** The rejections that Node reports as unhandled until the test ends. */
function unhandled(): unknown[] {
  const errors: unknown[] = [];
  const others = process.listeners("unhandledRejection");
  process.removeAllListeners("unhandledRejection");
  const listen = (error: unknown) => errors.push(error);
  process.on("unhandledRejection", listen);
  onTestFinished(() => {
    process.off("unhandledRejection", listen);
    for (const other of others) process.on("unhandledRejection", other);
  });
  return errors;
}

/** Node reports rejections after the microtasks of a turn. */
const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

const broken = new Error("broken");
const later = new Error("later");

describe("operations of a call", () => {
  it("leaves nothing to the call when the handler has awaited all", async () => {
    const operations = new CallOperations();
    const { promise, settler } = operation(operations);
    expect(operations.open).toBe(1);
    settler.resolve(7);
    expect([await promise, operations.open, operations.handlerReturned()]).toEqual([7, 0, undefined]);
  });

  it("waits for what is open when the handler returns, and gives the first failure", async () => {
    const reported = unhandled();
    const operations = new CallOperations();
    const [a, b, c] = [operation(operations), operation(operations), operation(operations)];
    const settled = operations.handlerReturned();
    let failure: unknown = "none yet";
    settled?.then((first) => {
      failure = first;
    });
    a.settler.resolve(1);
    b.settler.reject(broken);
    await nextTurn();
    expect(failure).toBe("none yet");
    c.settler.reject(later);
    expect(await settled).toEqual({ error: broken });
    await nextTurn();
    expect(reported).toEqual([]);
  });

  it("gives a failure that nobody awaited before the handler returned", async () => {
    const reported = unhandled();
    const operations = new CallOperations();
    operation(operations).settler.reject(broken);
    operation(operations).settler.reject(later);
    await nextTurn();
    expect([await operations.handlerReturned(), reported]).toEqual([{ error: broken }, []]);
  });

  it("gives a failure at the start of an operation", async () => {
    const reported = unhandled();
    const operations = new CallOperations();
    const promise = new CallPromise<number>(operations, (settler) => settler.reject(broken));
    await nextTurn();
    expect([await operations.handlerReturned(), reported]).toEqual([{ error: broken }, []]);
    await expect(promise).rejects.toBe(broken);
  });

  it("leaves a failure to a handler that awaits it, however late", async () => {
    const reported = unhandled();
    const operations = new CallOperations();
    const early = operation(operations);
    const caught = early.promise.catch((error: unknown) => error);
    early.settler.reject(broken);
    const late = operation(operations);
    late.settler.reject(later);
    await nextTurn();
    await expect(late.promise).rejects.toBe(later);
    expect([await caught, operations.handlerReturned(), reported]).toEqual([broken, undefined, []]);
  });

  it("leaves a failure outside of a handler to Node", async () => {
    const reported = unhandled();
    operation(undefined).settler.reject(broken);
    await nextTurn();
    expect(reported).toEqual([broken]);
  });
});
