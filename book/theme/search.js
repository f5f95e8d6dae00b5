// For a term of the glossary the search shows its chapter first. `book.tools.search` writes which that is
// behind mdBook's index, which a browser loads when somebody searches.
if (window.elasticlunr) {
  const ranked = elasticlunr.Index.prototype.search;
  elasticlunr.Index.prototype.search = function search(query, options) {
    const hits = ranked.call(this, query, options);
    const { terms = {}, doc_urls: urls = [] } = window.search ?? {};
    const page = Object.hasOwn(terms, query.toLowerCase()) ? terms[query.toLowerCase()] : '';
    const top = page ? urls.findIndex((url) => url.split('#')[0] === page) : -1;
    if (top < 0) return hits;
    const chapter = { ref: String(top), score: hits[0]?.score ?? 0, doc: this.documentStore.getDoc(top) };
    return [chapter, ...hits.filter((hit) => Number(hit.ref) !== top)];
  };
}
