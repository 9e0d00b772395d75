// A service worker: keeps the files of the page, so that it opens without its web server. Those of the
// server are preferred.

const STORE = "deltakwt";

addEventListener("install", (event) => event.waitUntil(keep().then(skipWaiting)));
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method === "GET" && new URL(request.url).origin === location.origin) event.respondWith(answer(request));
});

async function keep() {
  const { offline } = await (await fetch("contents.json")).json();
  await (await caches.open(STORE)).addAll(["./", "contents.json", ...offline]);
}

async function answer(request) {
  const store = await caches.open(STORE);
  try {
    const found = await fetch(request);
    if (found.ok) await store.put(request, found.clone());
    return found;
  } catch (error) {
    const kept = await store.match(request);
    if (!kept) throw error;
    return kept;
  }
}
