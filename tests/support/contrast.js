// The visible texts whose contrast with what is behind them is below WCAG AA: [text, class, contrast] each. A bar's ::before
// is behind its text too.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((x, i) => x * a / 255 + below[i] * (1 - a / 255));
  const light = rgb => { const [r, g, b] = rgb.map(x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const behind = element => {
    const own = [];
    for (let one = element; one; one = one.parentElement) {
      if (one.matches(".bar")) own.push(rgba(getComputedStyle(one, "::before").backgroundColor));
      own.push(rgba(getComputedStyle(one).backgroundColor));
    }
    return own.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, style = getComputedStyle(element);
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("script, style, .skip, option")) continue;
    const text = rgba(element.closest("svg") ? style.fill : style.color), below = behind(element);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    const value = ratio(over(text, below), below);
    if (value < (large ? 3 : 4.5)) found.push([walker.currentNode.data.slice(0, 30), element.className, +value.toFixed(2)]);
  }
  return found;
}
