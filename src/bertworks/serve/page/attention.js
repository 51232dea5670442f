// The tab of the explain panels: probing/explain.js draws what /explain computes.

const ATTENTION = {
  id: "attention", wide: true, when: model => model.can.includes("explain"),
  fields: [{ name: "text", area: true }, { name: "second", say: "secondSentence", area: true, optional: true }],
  ask: ({ text, second }, signal) => askModel("/explain", { a: text, b: second.trim() ? second : null, truncate: true }, signal),
  show(found) {
    const panels = make("div", { style: { "--explain-top": `${find("#tabs").offsetHeight}px` } });
    requestAnimationFrame(() => bertworksExplain(panels, found, state.language));  // it measures what it draws
    return panels;
  },
};
