/** What `createFetch` is told; everything has a default from the environment. */
export interface CreateFetchOptions {
  /** The server's address; `GLOVEBOX_URL` by default. */
  url?: string;
  /** Replaces an identity of the platform; `GLOVEBOX_TOKEN` by default. */
  token?: string;
  /** What sends the requests; the global fetch by default. */
  fetch?: typeof globalThis.fetch;
}

/**
 * A fetch for the client's `fetch` option that sends its requests to a
 * Glovebox server.
 * @throws {TypeError} where neither `url` nor `GLOVEBOX_URL` is given, or it is no address
 */
export declare function createFetch(options?: CreateFetchOptions): typeof globalThis.fetch;

/**
 * The address of a port, as `sandbox.domain(port)` answers it under `--import`.
 * @throws {Error} where the port has no route
 */
export declare function domain(sandbox: { readonly routes: readonly { url: string; port: number }[] }, port: number): string;
