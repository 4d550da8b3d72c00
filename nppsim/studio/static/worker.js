/* Service worker of an exported site: it stores all files at the first visit, so that the page works offline.
 *
 * The export writes the first line of this file, VERSION and FILES: a new export has another version, whose files
 * replace the earlier ones when no page uses these any more.
 */

/* global VERSION, FILES */

const prefix = `nppsim ${self.registration.scope} `;

self.addEventListener("install", (event) => {
  const requests = FILES.map((file) => new Request(file, { cache: "reload" }));
  event.waitUntil(caches.open(prefix + VERSION).then((cache) => cache.addAll(requests)));
});

self.addEventListener("activate", (event) => {
  const isOld = (name) => name.startsWith(prefix) && name !== prefix + VERSION;
  const clean = async () => {
    await Promise.all((await caches.keys()).filter(isOld).map((name) => caches.delete(name)));
    await self.clients.claim();
  };
  event.waitUntil(clean());
});

self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  const answer = async () => {
    const cache = await caches.open(prefix + VERSION);
    return (await cache.match(event.request, { ignoreSearch: true })) ?? fetch(event.request);
  };
  event.respondWith(answer());
});
