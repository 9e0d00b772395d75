// What a checker like Lighthouse would find in the page: a list of sentences, empty if all is well.
(() => {
  const found = [];
  const isShown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const called = (element) => element.outerHTML.slice(0, 90);

  // The page as a whole.
  if (!document.documentElement.lang || !document.title) found.push("no language or no title");
  for (const name of ["viewport", "description"]) if (!document.querySelector(`meta[name=${name}]`)) found.push(`no meta ${name}`);
  for (const script of document.scripts) if (script.type !== "module") found.push(`blocking script: ${called(script)}`);
  for (const name of ["header", "main", "footer"]) if (document.querySelectorAll(name).length !== 1) found.push(`not one ${name}`);
  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3")) {
    if (!isShown(heading)) continue;
    const next = Number(heading.tagName[1]);
    if (next > level + 1) found.push(`heading skips a level: ${called(heading)}`);
    level = next;
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  if (new Set(ids).size !== ids.length) found.push("an id is used twice");
  for (const element of document.querySelectorAll("[aria-labelledby]"))
    if (isShown(element) && !document.getElementById(element.getAttribute("aria-labelledby"))) found.push(`labelled by nothing: ${called(element)}`);
  for (const cell of document.querySelectorAll("th")) if (!cell.textContent.trim()) found.push("an empty table header");
  for (const list of document.querySelectorAll("ol, ul"))
    for (const child of list.children) if (child.tagName !== "LI") found.push(`no list item: ${called(child)}`);

  // Sizes for fingers.
  for (const element of document.querySelectorAll("button, select, input[type=range]"))
    if (isShown(element) && element.getBoundingClientRect().height < 24) found.push(`lower than 24 pixels: ${called(element)}`);

  // Contrast of every text, as WCAG defines it.
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = colour.map((value) => (value <= 10.3 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  for (const element of document.body.querySelectorAll("*")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!hasText || !isShown(element) || element.closest(":disabled, .hidden, option")) continue;
    const [one, two] = [light(numbers(getComputedStyle(element).color).slice(0, 3)), light(background(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)}: ${called(element)}`);
  }
  return found;
})();
