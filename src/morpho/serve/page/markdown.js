"use strict";
// Markdown as elements of the page, made one by one with text in them: what a model says is never read as HTML.
const Markdown = (() => {
  const SAFE_LINK = /^(https?:|mailto:)/i;

  function element(name, ...children) {
    const made = document.createElement(name);
    made.append(...children);
    return made;
  }

  function link(text, target) {
    let url;
    try { url = new URL(target); } catch { return document.createTextNode(text); }
    if (!SAFE_LINK.test(url.protocol)) return document.createTextNode(text);
    const made = element("a", text);
    made.href = url.href;
    made.rel = "noopener noreferrer nofollow";
    made.target = "_blank";
    return made;
  }

  // Code first, as nothing is read inside it; then links, strong, emphasis, struck out.
  const INLINE = /(`+)([\s\S]*?[^`])\1(?!`)|!?\[([^\]\n]{0,500})\]\(([^()\s]{1,2000})\)|<(https?:\/\/[^<>\s]{1,2000})>|\*\*([^*\n][\s\S]{0,2000}?)\*\*|__([^_\n][\s\S]{0,2000}?)__|\*([^*\s](?:[^*\n]{0,2000}?[^*\s])?)\*|~~([^~\n]{1,2000}?)~~/;

  function inline(text, depth = 0) {
    const found = [];
    while (text) {
      const match = depth < 8 ? INLINE.exec(text) : null;
      if (!match) { found.push(document.createTextNode(text)); break; }
      if (match.index) found.push(document.createTextNode(text.slice(0, match.index)));
      const [whole, , code, label, target, bare, strong, strong2, emphasis, struck] = match;
      if (code !== undefined) found.push(element("code", code.trim()));
      else if (target !== undefined) found.push(link(label || target, target));  // pictures too: nothing is fetched
      else if (bare !== undefined) found.push(link(bare, bare));
      else if (strong ?? strong2) found.push(element("strong", ...inline(strong ?? strong2, depth + 1)));
      else if (emphasis !== undefined) found.push(element("em", ...inline(emphasis, depth + 1)));
      else found.push(element("del", ...inline(struck, depth + 1)));
      text = text.slice(match.index + whole.length);
    }
    return found;
  }

  const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/, HEADING = /^(#{1,6})\s+(.*?)\s*#*\s*$/;
  const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/, RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
  const ROW = /^\s*\|?(.+\|.*)\|?\s*$/, DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

  function cells(line) {
    return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  }

  function table(lines) {
    const row = (line, name) => element("tr", ...cells(line).map((cell) => element(name, ...inline(cell))));
    return element("table", element("thead", row(lines[0], "th")),
                   element("tbody", ...lines.slice(2).map((line) => row(line, "td"))));
  }

  function list(lines, depth) {
    const ordered = /\d/.test(ITEM.exec(lines[0])[2]);
    const indent = ITEM.exec(lines[0])[1].length;
    const made = element(ordered ? "ol" : "ul");
    if (ordered) made.start = parseInt(ITEM.exec(lines[0])[2], 10);
    let item = null, inner = [];
    const close = () => { if (item) { if (inner.length) item.append(...blocks(inner, depth + 1)); made.append(item); } };
    for (const line of lines) {
      const match = ITEM.exec(line);
      if (match && match[1].length <= indent) {
        close();
        item = element("li", ...inline(match[3]));
        inner = [];
      } else inner.push(line.slice(Math.min(line.search(/\S|$/), indent + 2)));
    }
    close();
    return made;
  }

  function blocks(lines, depth = 0) {
    const found = [];
    let at = 0;
    const take = (test) => { const begin = at; while (at < lines.length && test(lines[at])) at++; return lines.slice(begin, at); };
    while (at < lines.length) {
      const line = lines[at], fence = FENCE.exec(line), heading = HEADING.exec(line);
      if (!line.trim()) { at++; continue; }
      if (fence) {
        at++;
        const body = take((each) => !each.trim().startsWith(fence[1]));
        at++;
        found.push(element("pre", element("code", body.join("\n"))));
      } else if (heading) {
        at++;
        found.push(element("h" + Math.min(heading[1].length, 4), ...inline(heading[2])));
      } else if (RULE.test(line)) {
        at++;
        found.push(element("hr"));
      } else if (ITEM.test(line) && depth < 6) {
        found.push(list(take((each) => ITEM.test(each) || (each.trim() && /^\s{2,}/.test(each))), depth));
      } else if (/^\s*>/.test(line) && depth < 6) {
        found.push(element("blockquote", ...blocks(take((each) => /^\s*>/.test(each)).map((each) =>
          each.replace(/^\s*>\s?/, "")), depth + 1)));
      } else if (ROW.test(line) && DIVIDER.test(lines[at + 1] ?? "")) {
        found.push(table(take((each) => ROW.test(each) || DIVIDER.test(each))));
      } else {
        const body = take((each) => each.trim() && !FENCE.test(each) && !HEADING.test(each) &&
          (depth >= 6 || !/^\s*>/.test(each)) && (depth >= 6 || !ITEM.test(each)) && !RULE.test(each));
        found.push(element("p", ...inline((body.length ? body : [lines[at++]]).join("\n"))));
      }
    }
    return found;
  }

  // Only the last block can change as text grows: those before it stay as they are.
  function show(place, text) {
    const made = blocks(text.replace(/\r\n?/g, "\n").split("\n"));
    made.forEach((block, number) => {
      const old = place.children[number];
      if (!old) place.append(block);
      else if (number >= made.length - 2 && !old.isEqualNode(block)) old.replaceWith(block);
    });
    while (place.children.length > made.length) place.lastElementChild.remove();
  }

  return { show };
})();
