import { Catch, HttpException, Logger, type RpcExceptionFilter } from "@nestjs/common";
import { RpcError } from "cinnabar/standard";
import { type Observable, throwError } from "rxjs";
import { httpError } from "./failures.ts";

/**
 * Passes `HttpException` and `RpcError` on to the caller. Nest hides the first without a line in the log, and logs the
 * second. `@CinnabarService` has it. For patterns without a contract: `app.useGlobalFilters(new
 * CinnabarExceptionFilter())`.
 */
@Catch(HttpException, RpcError)
export class CinnabarExceptionFilter implements RpcExceptionFilter<HttpException | RpcError> {
  readonly #logger = new Logger(CinnabarExceptionFilter.name);

  catch(exception: HttpException | RpcError): Observable<never> {
    if (!(exception instanceof HttpException)) return throwError(() => exception);
    // The caller reads only the code of these.
    if (exception.getStatus() >= 500) this.#logger.error(exception);
    return throwError(() => httpError(exception));
  }
}
