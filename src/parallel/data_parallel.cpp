#include "parallel/data_parallel.h"

#include "parallel/central_dp.h"
#include "parallel/distributed_dp.h"
#include "parallel/server_dp.h"

namespace lockstep {

std::unique_ptr<DataParallel> make_data_parallel(const DataParallel::Options& options,
                                                 const DataParallel::Ranks& ranks) {
  if (options.layout.dp_kind == DpKind::central) return std::make_unique<CentralDp>(options, ranks);
  if (options.layout.dp_kind == DpKind::server) return std::make_unique<ServerDp>(options, ranks);
  return std::make_unique<DistributedDp>(options);
}

}  // namespace lockstep
