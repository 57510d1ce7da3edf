import { createParamDecorator, type ExecutionContext } from "@nestjs/common";
import { BaseRpcContext } from "@nestjs/microservices";
import type { CallContext } from "cinnabar/standard";

/** The context of a handler, for `@Ctx()`, guards, interceptors and filters. */
export class CinnabarContext<C extends CallContext = CallContext> extends BaseRpcContext<
  [call: C, pattern: string]
> {
  /** The call as a handler of Cinnabar has it: deadline, identity, metadata, headers, trailers, the way back. */
  get call(): C {
    return this.args[0];
  }

  /** Fires when the caller cancels or goes away, or the deadline passes. */
  get signal(): AbortSignal {
    return this.args[0].signal;
  }

  /** The pattern of the handler; `service/method` for a method of a contract. */
  getPattern(): string {
    return this.args[1];
  }
}

/**
 * The call of a handler, as a parameter. Methods of a `@CinnabarService` have it as their second parameter without a
 * decorator.
 */
export const Call = createParamDecorator(
  (_: unknown, context: ExecutionContext): CallContext =>
    context.switchToRpc().getContext<CinnabarContext>().call,
);
