// A live page over the runs below a folder, and GET /metrics for Prometheus.
//
// It reads files and nothing else: it cannot slow, change or end a run. The page, its script and its charts are in the
// program, and the browser is told to load nothing from elsewhere (Content-Security-Policy). Text of files reaches the
// page as JSON and is shown as text, never as HTML.
//
// answer() is the whole of it but the sockets: any number of threads, never throws.
//
//   GET /                    the page; /page.js … what it loads
//   GET /api/runs            summaries of all runs
//   GET /api/curves?run=&from=&to=     and times, memory, events, findings, timeline, schedule: run_answers.h,
//   trace_answers.h GET /metrics             prometheus.h GET, POST /login         where there is a token
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dashboard/access.h"
#include "dashboard/http_server.h"

namespace lockstep {

class RunStore;

struct DashboardOptions {
  std::filesystem::path folder;
  std::string token = {};               // empty: none is asked for
  std::vector<std::string> hosts = {};  // names under which the page may be asked for, besides numeric ones
};

class Dashboard {
 public:
  explicit Dashboard(const DashboardOptions& options);
  ~Dashboard();

  HttpAnswer answer(const HttpRequest& request);
  std::size_t runs();  // how many there are

 private:
  HttpAnswer api(const std::string& what, const HttpRequest& request);
  HttpAnswer login(const HttpRequest& request) const;
  HttpAnswer routed(const HttpRequest& request);

  std::string folder_name_;
  Access access_;
  std::unique_ptr<RunStore> store_;
};

}  // namespace lockstep
