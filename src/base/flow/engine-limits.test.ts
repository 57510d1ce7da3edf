import { describe, expect, it } from "vitest";
import { stagingPoolBytes } from "../../transfer/sealed/staging.ts";
