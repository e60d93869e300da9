# libuv as Debian ships it: the archive is libuv_a.a, which pkg-config does not know.
find_path(LIBUV_INCLUDE uv.h)
find_library(LIBUV_ARCHIVE NAMES libuv_a.a libuv.a)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibuvStatic REQUIRED_VARS LIBUV_ARCHIVE LIBUV_INCLUDE
  REASON_FAILURE_MESSAGE "install the Debian package libuv1-dev, or run scripts/setup.sh")
add_library(debian::uv STATIC IMPORTED)
set_target_properties(debian::uv PROPERTIES IMPORTED_LOCATION ${LIBUV_ARCHIVE}
  INTERFACE_INCLUDE_DIRECTORIES ${LIBUV_INCLUDE} INTERFACE_LINK_LIBRARIES "Threads::Threads;dl;rt")
